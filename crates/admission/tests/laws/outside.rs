//! A controller and a rule of refusal from outside of the crate, as bad as may be: the laws hold for them,
//! too.

use admission::{Control, ControlMaker, Duration, Instant, Maker, Refuse, RefuseMaker, Sample};

/// A controller that jumps between 1 and its top with every request that ends.
pub(crate) const ERRATIC: ControlMaker =
    Maker { name: "erratic", make: |top| Box::new(Erratic { top, ended: 0 }) };

/// A rule that refuses every other request that has waited for 2 ms, but never the last one that waits.
pub(crate) const EVERY_OTHER: RefuseMaker = Maker { name: "every other", make: || Box::new(EveryOther(0)) };

#[derive(Debug)]
struct Erratic {
    top: u32,
    ended: u32,
}

impl Control for Erratic {
    fn most(&self) -> u32 {
        1 + self.ended.wrapping_mul(7) % self.top
    }

    fn observe(&mut self, _: Instant, _: u32, _: bool) {}

    fn complete(&mut self, _: Instant, _: &Sample) {
        self.ended = self.ended.wrapping_add(1);
    }

    fn set_top(&mut self, top: u32) {
        self.top = top;
    }
}

#[derive(Debug)]
struct EveryOther(u32);

impl Refuse for EveryOther {
    fn refuses(&mut self, _: Instant, waited: Duration, others_wait: bool) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0 % 2 == 0 && others_wait && waited >= Duration::from_millis(2)
    }
}
