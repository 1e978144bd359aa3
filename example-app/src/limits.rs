//! What an operator does to quotas that have a name.

use std::{error::Error, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use resilience::{Algorithm, Limit, OnOutage};

use crate::config::Config;

#[derive(Subcommand)]
pub(crate) enum LimitChange {
    /// Print each quota, and where its numbers come from
    List,
    /// Change a quota, for all instances within a second
    Set(Set),
    /// Forget what was set: the file, or the code, counts again
    Clear {
        /// The quota's name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Set {
    /// The quota's name
    name: String,
    /// Requests in a window
    requests: u32,
    /// The window, with its unit: 30s, 1m, 1h
    #[arg(value_parser = humantime::parse_duration)]
    window: Duration,
    /// How requests are counted
    #[arg(long, value_enum, default_value_t)]
    algorithm: Counting,
    /// How much a token bucket lets pass at once
    #[arg(long)]
    burst: Option<u32>,
    /// What happens while Redis cannot tell; the code decides unless this does
    #[arg(long, value_enum)]
    on_outage: Option<Outage>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Counting {
    #[default]
    SlidingWindow,
    FixedWindow,
    TokenBucket,
}

#[derive(Clone, Copy, ValueEnum)]
enum Outage {
    #[value(name = "fail_open")]
    Open,
    #[value(name = "fail_closed")]
    Closed,
    #[value(name = "fail_local")]
    Local,
}

impl Set {
    fn limit(&self) -> Limit {
        let mut limit = Limit::new(self.requests, self.window).with_algorithm(match self.algorithm {
            Counting::SlidingWindow => Algorithm::SlidingWindow,
            Counting::FixedWindow => Algorithm::FixedWindow,
            Counting::TokenBucket => Algorithm::TokenBucket,
        });
        if let Some(burst) = self.burst {
            limit = limit.with_burst(burst);
        }
        match self.on_outage {
            None => limit,
            Some(Outage::Open) => limit.with_on_outage(OnOutage::FailOpen),
            Some(Outage::Closed) => limit.with_on_outage(OnOutage::FailClosed),
            Some(Outage::Local) => limit.with_on_outage(OnOutage::FailLocal),
        }
    }
}

pub(crate) async fn change(config: &Config, change: LimitChange) -> Result<(), Box<dyn Error>> {
    // Refused without a Redis: the embedded store lives only inside its service.
    config.redis()?;
    let limits = config.resilience()?.limits();
    match change {
        LimitChange::List => {
            limits.refresh().await?;
            for quota in limits.list() {
                match (quota.limit, quota.source) {
                    (Some(limit), Some(source)) => println!("{}: {limit} (from the {source})", quota.name),
                    _ => println!("{}: not defined", quota.name),
                }
            }
        }
        LimitChange::Set(set) => {
            limits.set(&set.name, set.limit()).await?;
            println!("{} is {}", set.name, set.limit());
        }
        LimitChange::Clear { name } => {
            limits.clear(&name).await?;
            println!("{name} is what file and code say");
        }
    }
    Ok(())
}
