//! What an operator does from the shell: the same layout of keys as the service reads.

use std::error::Error;

use clap::{Subcommand, ValueEnum};
use resilience::{Resilience, store::StoreAdmin};

use crate::config::Config;

type Outcome = Result<(), Box<dyn Error>>;

#[derive(Subcommand)]
pub(crate) enum KeyChange {
    /// Let an API key in, as this user
    Add {
        /// The key, as clients send it
        key: String,
        /// Whom it stands for
        user: String,
    },
    /// Turn an API key away
    Remove {
        /// The key, as clients send it
        key: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum FlagChange {
    /// Switch a flag on or off
    Set {
        /// The flag's name
        name: String,
        /// Its value
        value: Switch,
    },
    /// Forget a flag: it is off then
    Clear {
        /// The flag's name
        name: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

pub(crate) async fn change_key(config: &Config, change: KeyChange) -> Outcome {
    let store = config.redis()?;
    match change {
        KeyChange::Add { key, user } => {
            store.add_api_key(&key, &user).await?;
            println!("the key stands for {user}");
        }
        KeyChange::Remove { key } => match store.remove_api_key(&key).await? {
            true => println!("the key is gone"),
            false => println!("there was no such key"),
        },
    }
    Ok(())
}

pub(crate) async fn change_flag(config: &Config, change: FlagChange) -> Outcome {
    let store = config.redis()?;
    match change {
        FlagChange::Set { name, value } => {
            let on = matches!(value, Switch::On);
            store.set_flag(&name, on).await?;
            println!("{name} is {}", if on { "on" } else { "off" });
        }
        FlagChange::Clear { name } => match store.clear_flag(&name).await? {
            true => println!("{name} is no longer set"),
            false => println!("{name} was not set"),
        },
    }
    Ok(())
}

pub(crate) async fn unlock(config: &Config, account: &str) -> Outcome {
    config.redis()?;
    match config.resilience()?.unlock(account).await? {
        0 => println!("there was nothing to unlock for {account}"),
        _ => println!("{account} may try again"),
    }
    Ok(())
}

pub(crate) fn print_policies(resilience: &Resilience) -> Outcome {
    for policy in resilience.policies() {
        println!("{policy}\n");
    }
    Ok(())
}
