//! The same guard twice is one too many.

use poem::handler;
use resilience::resilient;

#[derive(Debug)]
struct Nothing;

static NOTHING: Nothing = Nothing;

#[resilient(guard(NOTHING), guard(crate::NOTHING), guard(NOTHING))]
#[handler]
async fn twice() {}

fn main() {
    let _: &dyn std::fmt::Debug = &NOTHING;
    let _ = poem::get(twice);
}
