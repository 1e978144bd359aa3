//! A small service on top of `resilience`. Run it with no settings at all, or point `REDIS_URL` at a Redis and break it.

mod admin;
mod config;
mod routes;
mod serve;

use std::{error::Error, process::ExitCode};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::config::Config;

/// A small service behind `resilience`.
///
/// Settings come from the environment: PORT (3000), HOST (127.0.0.1), REDIS_URL (none: an embedded store),
/// BREAKERS (shared, or per_operation), API_KEYS (sha256, or plain), RUST_LOG (info).
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (what also happens without a command)
    Serve,
    /// Add or remove API keys in the Redis at REDIS_URL
    Key {
        #[command(subcommand)]
        change: admin::KeyChange,
    },
    /// Set or clear flags in the Redis at REDIS_URL
    Flag {
        #[command(subcommand)]
        change: admin::FlagChange,
    },
    /// Print the guards of every handler, in the order in which they run
    Policies,
}

/// Exit code for settings that make no sense, as clap uses it for arguments.
const MISUSE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")))
        .with_writer(std::io::stderr)
        .init();

    let config = match Config::from_env() {
        Ok(config) => config,
        Err(problem) => return fail(&problem, MISUSE),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    runtime.block_on(async {
        let resilience = match config.resilience() {
            Ok(resilience) => resilience,
            Err(problem) => return fail(&problem, MISUSE),
        };
        let outcome = match cli.command.unwrap_or(Command::Serve) {
            Command::Serve => serve::serve(&config, resilience).await,
            Command::Key { change } => admin::change_key(&config, change).await,
            Command::Flag { change } => admin::change_flag(&config, change).await,
            Command::Policies => admin::print_policies(&resilience),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&*error, 1),
        }
    })
}

fn fail(error: &dyn Error, code: u8) -> ExitCode {
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprintln!("  caused by: {cause}");
        source = cause.source();
    }
    ExitCode::from(code)
}
