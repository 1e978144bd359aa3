//! A small service on top of `resilience`. Run it with no settings at all, or point `REDIS_URL` at a Redis and break it.

mod admin;
mod breakers;
mod config;
mod limits;
mod payments;
mod redis_keys;
mod routes;
mod serve;
mod users;

use std::{
    error::Error,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::config::{Config, Misuse};

/// A small service behind `resilience`.
///
/// Settings come from the environment: PORT (3000), HOST (127.0.0.1), REDIS_URL (none: an embedded store),
/// BREAKERS (shared, or per_operation), API_KEYS (sha256, or plain), KEY_SECRET (none; at least 16
/// bytes that hide clients in the names of Redis keys), TRUSTED_PROXIES (none; networks and addresses,
/// separated by commas, whose X-Forwarded-For is believed), LIMITS_FILE (none; TOML with quotas by name),
/// PAYMENTS_URL (none: a stub on a second port), SHARE_BREAKERS (none; the system whose breakers are shared through
/// Redis), ADMIN_TOKEN (none; who sends it may hold them at /admin/breakers), RUST_LOG (info).
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
    /// Look at quotas that have a name, and change them in the Redis at REDIS_URL
    Limits {
        #[command(subcommand)]
        change: limits::LimitChange,
    },
    /// Look at the breakers that all instances share, and hold them, in the Redis at REDIS_URL
    Breakers {
        #[command(subcommand)]
        order: breakers::BreakerOrder,
    },
    /// Forget the attempts against an account, in the Redis at REDIS_URL: it may log in again at once
    Unlock {
        /// The account's name, in any spelling
        account: String,
    },
    /// Print patterns for `redis-cli --scan --pattern` that find the counts and tallies of a client: first of quotas, then
    /// of lockouts. Uses KEY_SECRET
    RedisKeys {
        #[command(subcommand)]
        client: redis_keys::Client,
    },
    /// Print the guards of every handler, in the order in which they run
    Policies,
}

/// Exit code for settings that make no sense, as clap uses it for arguments.
const MISUSE: u8 = 2;

fn main() -> ExitCode {
    let command = Cli::parse().command.unwrap_or(Command::Serve);
    log(&command);
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if error.is::<Misuse>() { MISUSE } else { 1 })
        }
    }
}

#[tokio::main]
async fn run(command: Command) -> Result<(), Box<dyn Error>> {
    let config = Config::from_env()?;
    match command {
        Command::Serve => serve::serve(&config).await,
        Command::Key { change } => admin::change_key(&config, change).await,
        Command::Flag { change } => admin::change_flag(&config, change).await,
        Command::Limits { change } => limits::change(&config, change).await,
        Command::Breakers { order } => breakers::order(&config, order).await,
        Command::Unlock { account } => admin::unlock(&config, &account).await,
        Command::RedisKeys { client } => redis_keys::print(&config, client),
        Command::Policies => admin::print_policies(&config.resilience()?),
    }
}

/// A service tells what happens to it; a command that ends has its own way to say so.
fn log(command: &Command) {
    let level = if matches!(command, Command::Serve) {
        "info"
    } else {
        "error"
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level)))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
