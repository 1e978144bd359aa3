//! The service as its users and operators meet it: a process with settings, a port, signals and an exit code.

mod breakers;
mod embedded;
mod instances;
mod limits;
mod login;
mod operator;
mod outage;
mod process;
mod proxies;
mod quote;
mod redis_keys;
mod report;
mod settings;
mod shared;
mod shutdown;
#[cfg(feature = "tls")]
mod tls;
