//! The protocol in all interleavings of a small fleet: the real circuit, the real replica and the real board, and in place of
//! the driver's task its steps, one by one.
//!
//! Breadth first from a few situations, each state once. What the schedule decides: when calls come and end, whether the
//! dependency is well, when each instance asks, when its question is taken and when the answer is heard, and (with faults)
//! which answers are lost, who is cut off, who crashes, and when the board forgets everything.

mod world;

use std::{
    collections::{HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use self::world::{Step, World};

/// Looks at every state that `steps` steps lead to, at most. How many there are.
fn explore(roots: Vec<World>, steps: usize, faults: u8, check: impl Fn(&World)) -> usize {
    let mut seen = HashSet::new();
    let mut next = VecDeque::new();
    for mut root in roots {
        root.faults_left = faults;
        seen.insert(fingerprint(&root));
        next.push_back((root, 0));
    }
    while let Some((world, depth)) = next.pop_front() {
        check(&world);
        if depth == steps {
            continue;
        }
        for step in world.steps() {
            let mut after = world.clone();
            after.take(step);
            if seen.insert(fingerprint(&after)) {
                next.push_back((after, depth + 1));
            }
        }
    }
    seen.len()
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.shown().hash(&mut hasher);
    hasher.finish()
}

/// All closed, with a healthy dependency, a board that answers, and calls that keep coming.
fn recovers(world: &World) {
    let mut world = world.clone();
    world.heal();
    for _ in 0..60 {
        if world.is_closed() {
            return;
        }
        world.round();
    }
    panic!("stuck: {}", world.story());
}

fn situations(instances: usize) -> Vec<World> {
    let closed = World::new(instances);
    let mut open = closed.clone();
    open.open_for_all();
    let mut due = open.clone();
    due.pass_until_due();
    let mut probing = due.clone();
    probing.begin_probe(0);
    vec![closed, open, due, probing]
}

#[test]
fn one_probe_at_a_time_and_nobody_is_stuck_while_the_board_answers() {
    let checked = |world: &World| {
        assert!(world.probes() <= 1, "{}", world.story());
        if fingerprint(world).is_multiple_of(16) {
            recovers(world);
        }
    };
    let states = explore(situations(2), 9, 0, checked) + explore(situations(3), 5, 0, checked);
    assert!(states > 20_000, "only {states} states");
}

#[test]
fn with_faults_one_has_leave_to_probe_and_nobody_is_stuck() {
    let checked = |world: &World| {
        // A board that loses its data loses the leases in it: one probe more for each time.
        assert!(world.leased_probes() <= 1 + world.forgotten, "{}", world.story());
        if fingerprint(world).is_multiple_of(16) {
            recovers(world);
        }
    };
    let states = explore(situations(2), 7, 2, checked);
    assert!(states > 20_000, "only {states} states");
}

#[test]
fn a_circuit_whose_driver_has_died_recovers_alone() {
    let states = explore(situations(2), 6, 1, |world| {
        for nth in 0..2 {
            let mut world = world.clone();
            world.heal();
            assert!(world.recovers_without_driver(nth), "{}", world.story());
        }
    });
    assert!(states > 2_000, "only {states} states");
}

#[test]
fn one_step_is_one_step() {
    // What the model must be able to do, or it would show nothing.
    let mut world = situations(2).remove(2);
    assert!(world.steps().contains(&Step::Call(0)));
    world.begin_probe(1);
    assert_eq!((world.probes(), world.leased_probes()), (1, 1));
}
