//! The semaphore under every interleaving (within a bound of preemptions) that loom can make.
//!
//! Compiles the very files of the semaphore, with loom's lock in place of the standard one.

use std::{
    sync::Arc as StdArc,
    task::{Poll, Wake, Waker},
};

use loom::{
    future::block_on,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use self::{
    error::Shed,
    priority::Priority,
    semaphore::{Semaphore, Waiting},
};

#[allow(dead_code, unreachable_pub, reason = "only the semaphore is checked here")]
#[path = "../src/concurrency/adaptive.rs"]
mod adaptive;
#[allow(dead_code, unreachable_pub, reason = "only the nanoseconds of a duration are needed")]
#[path = "../src/clock.rs"]
mod clock;
#[allow(dead_code, unreachable_pub, reason = "only the semaphore is checked here")]
#[path = "../src/concurrency/config.rs"]
mod config;
#[allow(dead_code, unreachable_pub, reason = "only the semaphore is checked here")]
#[path = "../src/concurrency/error.rs"]
mod error;
#[path = "../src/concurrency/estimator.rs"]
mod estimator;
#[allow(dead_code, unreachable_pub, reason = "only the semaphore is checked here")]
#[path = "../src/concurrency/priority.rs"]
mod priority;
#[path = "../src/concurrency/semaphore.rs"]
mod semaphore;
#[allow(dead_code, reason = "only the semaphore is checked here")]
#[path = "../src/concurrency/state.rs"]
mod state;

mod sync {
    pub(super) use std::sync::PoisonError;

    pub(super) use loom::sync::{Mutex, MutexGuard};
}

/// Time at which every model starts, and how long a waiter waits.
const START: u64 = 1_000;
const PATIENCE: u64 = 1_000;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    // Without a bound they pass as well, but for the one of three threads, which takes hours.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn semaphore(limit: u32, queue: u32) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limit, queue, None))
}

fn now() -> u64 {
    START
}

type Queued<'a> = Waiting<'a, fn() -> u64>;

/// Takes a place, or one in the queue.
fn queue(semaphore: &Semaphore, priority: Priority) -> Result<Option<Queued<'_>>, Shed> {
    semaphore.queue(priority, PATIENCE, now as fn() -> u64)
}

/// Waits for a place until it is granted or refused. A wake-up that is lost shows as a deadlock.
fn acquire(semaphore: &Semaphore, priority: Priority) -> Result<(), Shed> {
    match queue(semaphore, priority)? {
        None => Ok(()),
        Some(mut waiting) => block_on(std::future::poll_fn(|cx| waiting.poll(cx.waker()))),
    }
}

/// Polls once, with a waker that nobody listens to.
fn poll(waiting: &mut Queued<'_>) -> Poll<Result<(), Shed>> {
    waiting.poll(Waker::noop())
}

fn assert_idle(semaphore: &Semaphore) {
    semaphore.with(|state| {
        assert_eq!((state.in_flight(), state.queued()), (0, 0));
        assert!(state.admit(), "a place was lost");
        state.release(now);
    });
}

/// Counts those inside, apart from the semaphore.
struct Inside(AtomicUsize);

impl Inside {
    fn visit(&self, at_most: usize) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) < at_most, "over-admission");
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn everybody_gets_a_turn_and_never_two_at_once() {
    check(|| {
        let semaphore = semaphore(1, 2);
        let inside = Arc::new(Inside(AtomicUsize::new(0)));
        let task = {
            let (semaphore, inside) = (semaphore.clone(), inside.clone());
            move || {
                acquire(&semaphore, Priority::Default).expect("there is room for all");
                inside.visit(1);
                semaphore.release(now);
            }
        };
        let others = [thread::spawn(task.clone()), thread::spawn(task.clone())];
        task();
        for other in others {
            other.join().unwrap();
        }
        assert_idle(&semaphore);
    });
}

#[test]
fn a_waiter_that_goes_while_it_is_granted_hands_on() {
    check(|| {
        let semaphore = semaphore(1, 2);
        assert!(semaphore.admit());
        let goes = thread::spawn({
            let semaphore = semaphore.clone();
            move || {
                let mut waiting = queue(&semaphore, Priority::Critical).expect("there is room");
                match &mut waiting {
                    None => semaphore.release(now),
                    Some(queued) => {
                        if poll(queued).is_ready() {
                            semaphore.release(now);
                        }
                    }
                }
            }
        });
        let stays = thread::spawn({
            let semaphore = semaphore.clone();
            move || {
                acquire(&semaphore, Priority::Default).expect("there is room");
                semaphore.release(now);
            }
        });
        semaphore.release(now);
        goes.join().unwrap();
        stays.join().unwrap();
        assert_idle(&semaphore);
    });
}

#[test]
fn a_timer_that_races_the_grant_loses_no_place() {
    check(|| {
        let semaphore = semaphore(1, 1);
        assert!(semaphore.admit());
        let waits = thread::spawn({
            let semaphore = semaphore.clone();
            move || {
                let granted = match queue(&semaphore, Priority::Default).expect("there is room") {
                    None => Ok(()),
                    Some(mut waiting) => waiting.expire(),
                };
                match granted {
                    Ok(()) => semaphore.release(now),
                    Err(reason) => assert_eq!(reason, Shed::QueueTimeout),
                }
            }
        });
        semaphore.release(now);
        waits.join().unwrap();
        assert_idle(&semaphore);
    });
}

#[test]
fn who_is_displaced_hears_of_it() {
    check(|| {
        let semaphore = semaphore(1, 1);
        assert!(semaphore.admit());
        let background = thread::spawn({
            let semaphore = semaphore.clone();
            move || match acquire(&semaphore, Priority::Background) {
                Ok(()) => semaphore.release(now),
                Err(reason) => assert!(matches!(reason, Shed::Displaced | Shed::QueueFull)),
            }
        });
        let critical = thread::spawn({
            let semaphore = semaphore.clone();
            move || {
                acquire(&semaphore, Priority::Critical).expect("nobody is more important");
                semaphore.release(now);
            }
        });
        semaphore.release(now);
        background.join().unwrap();
        critical.join().unwrap();
        assert_idle(&semaphore);
    });
}

#[test]
fn a_limit_that_grows_wakes_waiters() {
    check(|| {
        let semaphore = semaphore(1, 2);
        assert!(semaphore.admit());
        let waiters = [Priority::Default, Priority::Background].map(|priority| {
            let semaphore = semaphore.clone();
            thread::spawn(move || {
                acquire(&semaphore, priority).expect("there is room");
                semaphore.release(now);
            })
        });
        semaphore.with(|state| state.set_limit(2, now));
        for waiter in waiters {
            waiter.join().unwrap();
        }
        semaphore.release(now);
        assert_idle(&semaphore);
    });
}

#[test]
fn a_limit_that_shrinks_lets_in_no_more() {
    check(|| {
        let semaphore = semaphore(2, 1);
        assert!(semaphore.admit() && semaphore.admit());
        let shrinks = thread::spawn({
            let semaphore = semaphore.clone();
            move || semaphore.with(|state| state.set_limit(1, now))
        });
        let waits = thread::spawn({
            let semaphore = semaphore.clone();
            move || {
                acquire(&semaphore, Priority::Default).expect("there is room");
                semaphore.release(now);
            }
        });
        semaphore.release(now);
        shrinks.join().unwrap();
        semaphore.release(now);
        waits.join().unwrap();
        assert_idle(&semaphore);
    });
}

#[test]
fn a_waker_is_woken_outside_the_lock() {
    /// Looks at the semaphore when it is woken or dropped, which would wait for ever for a lock that is held.
    struct Looks(Arc<Semaphore>);

    impl Wake for Looks {
        fn wake(self: StdArc<Self>) {
            self.0.with(|state| state.queued());
        }
    }

    impl Drop for Looks {
        fn drop(&mut self) {
            self.0.with(|state| state.queued());
        }
    }

    let looks = |semaphore: &Arc<Semaphore>| Waker::from(StdArc::new(Looks(semaphore.clone())));
    check(move || {
        let semaphore = semaphore(1, 1);
        assert!(semaphore.admit());
        let mut waiting = queue(&semaphore, Priority::Background).expect("room").expect("a wait");
        // The first waker is replaced, the second woken by a displacement, the third leaves with its waiter.
        for _ in 0..2 {
            assert!(waiting.poll(&looks(&semaphore)).is_pending());
        }
        let mut critical = queue(&semaphore, Priority::Critical).expect("room").expect("a wait");
        assert_eq!(poll(&mut waiting), Poll::Ready(Err(Shed::Displaced)));
        assert!(critical.poll(&looks(&semaphore)).is_pending());
        drop(critical);
        semaphore.release(now);
        assert_idle(&semaphore);
    });
}
