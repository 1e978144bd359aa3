//! The thread that reads and writes the store's sockets.
//!
//! Under load, a task of the service waits for its turn behind thousands of others. If connections were driven by such
//! tasks, that wait would look like a slow store. Here connections have a thread of their own, which only moves bytes: it
//! sends at once, reads at once, and its clock measures the store alone.

use std::{io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A runtime on a thread of its own. Dropped, it ends the thread and everything that runs there, without waiting for it.
#[derive(Debug)]
pub(super) struct IoThread {
    handle: Handle,
    /// Dropped with this: the thread waits for that.
    _running: oneshot::Sender<()>,
}

impl IoThread {
    /// # Errors
    ///
    /// When the system refuses a thread or a poller.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, stopped) = oneshot::channel();
        thread::Builder::new()
            .name("resilience-redis".to_owned())
            .spawn(move || {
                // The sender sends nothing: it is dropped.
                _ = runtime.block_on(stopped);
                // A blocking task, such as a name resolution that hangs, is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    pub(super) const fn handle(&self) -> &Handle {
        &self.handle
    }
}
