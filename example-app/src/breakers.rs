//! What an operator does to breakers that instances share.

use std::{env, error::Error, time::Duration};

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use resilience::sharing::{Order, SharedBreakers, Status};

use crate::{config::Config, payments};

#[derive(Subcommand)]
pub(crate) enum BreakerOrder {
    /// Print each breaker: how it stands for all instances, since when and why
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold a breaker open: no instance calls the dependency, however well it is
    Open(Hold),
    /// Hold a breaker closed: all instances call the dependency, whatever comes of it
    Close(Hold),
    /// Let go of a breaker: it is closed, and opens by its own rules
    Release {
        /// The breaker's name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Hold {
    /// The breaker's name
    name: String,
    /// Why, for whoever looks at it
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Who says so; USER unless given
    #[arg(long)]
    author: Option<String>,
    /// For how long, with its unit: 30s, 10m, 2h; until it is released unless given
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    lasts: Option<Duration>,
}

impl Hold {
    fn order(&self) -> Order {
        let user = env::var("USER").ok().filter(|user| !user.is_empty());
        let author = self.author.clone().or(user);
        let order = Order::because(&self.reason).by(author.unwrap_or_else(|| "operator".to_owned()));
        match self.lasts {
            Some(lasts) => order.lasting(lasts),
            None => order,
        }
    }
}

pub(crate) async fn order(config: &Config, order: BreakerOrder) -> Result<(), Box<dyn Error>> {
    let breakers = config.shared_breakers()?;
    match order {
        BreakerOrder::List { json } => {
            let all = list(&breakers).await?;
            if json {
                println!("{}", serde_json::to_string_pretty(&all)?);
            } else {
                all.iter().for_each(|status| println!("{}", line(status)));
            }
        }
        BreakerOrder::Open(hold) => {
            breakers.hold_open(&hold.name, hold.order()).await?;
            println!("{} is held open", plain(&hold.name));
        }
        BreakerOrder::Close(hold) => {
            breakers.hold_closed(&hold.name, hold.order()).await?;
            println!("{} is held closed", plain(&hold.name));
        }
        BreakerOrder::Release { name } => match breakers.release(&name).await? {
            true => println!("{} goes by its own rules", plain(&name)),
            false => println!("{} was not held", plain(&name)),
        },
    }
    Ok(())
}

/// What the store knows, and what this service calls of which nobody has told anything yet.
async fn list(breakers: &SharedBreakers) -> Result<Vec<Status>, Box<dyn Error>> {
    let mut all = breakers.list().await?;
    if all.iter().all(|status| status.name != payments::NAME) {
        all.push(Status::closed(payments::NAME));
        all.sort_by(|one, other| one.name.cmp(&other.name));
    }
    Ok(all)
}

/// `payments: open since 2026-12-01T12:00:00Z, held by ada: "they deploy", for 9m 58s more`.
fn line(status: &Status) -> String {
    let mut line = format!("{}: {}", plain(&status.name), status.state.as_str());
    if let Some(since) = status.since {
        line += &format!(" since {}", humantime::format_rfc3339_seconds(since));
    }
    if let Some(hold) = &status.hold {
        line += &format!(", held by {}: \"{}\"", plain(&hold.author), plain(&hold.reason));
        if let Some(ends_in) = hold.ends_in {
            let seconds = Duration::from_secs(ends_in.as_secs());
            line += &format!(", for {} more", humantime::format_duration(seconds));
        }
    } else if let Some(reason) = &status.reason {
        line += &format!(": {}", plain(reason));
    }
    line
}

/// What somebody else wrote, in one line, and with nothing in it that a terminal obeys.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for char in text.chars() {
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}
