use super::event::State;

/// State, generation, and whether a success has something to do: all that a call through a closed circuit looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    const STATE: u64 = 0b011;
    const TALLYING: u64 = 0b100;
    const GENERATION_SHIFT: u32 = 3;

    #[inline]
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn into_bits(self) -> u64 {
        self.0
    }

    pub(super) fn new(generation: u64, state: State, tallying: bool) -> Self {
        let state = match state {
            State::Closed => 0,
            State::Open => 1,
            State::HalfOpen => 2,
        };
        let tallying = if tallying { Self::TALLYING } else { 0 };
        Self(generation << Self::GENERATION_SHIFT | tallying | state)
    }

    #[inline]
    pub(super) fn state(self) -> State {
        match self.0 & Self::STATE {
            0 => State::Closed,
            1 => State::Open,
            _ => State::HalfOpen,
        }
    }

    /// Whether a success has something to count or to clear.
    #[inline]
    pub(super) fn is_tallying(self) -> bool {
        self.0 & Self::TALLYING != 0
    }

    /// Changes with every transition.
    #[inline]
    pub(super) fn generation(self) -> u64 {
        self.0 >> Self::GENERATION_SHIFT
    }
}
