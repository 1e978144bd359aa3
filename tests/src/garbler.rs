//! Replies that a proxy loses, doubles, reorders or cuts.

use std::sync::{Arc, Mutex, PoisonError};

/// What becomes of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garble {
    /// It never arrives.
    Lose,
    /// It arrives twice.
    Double,
    /// It arrives after the one that follows it.
    Swap,
    /// Half of it arrives, and the connection is closed.
    Cut,
    /// Its first byte, which says what it is, is another one.
    Scramble,
}

/// The next reply to garble, shared by all connections of a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Next(Arc<Mutex<Option<Order>>>);

/// How to garble, and which reply: one that contains these bytes.
type Order = (Garble, Vec<u8>);

impl Next {
    /// Garbles the next reply that contains these bytes.
    pub(crate) fn set(&self, how: Garble, containing: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((how, containing.to_vec()));
    }

    /// Whether a reply was garbled since it was set.
    pub(crate) fn is_done(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn take_for(&self, frame: &[u8]) -> Option<Garble> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (how, needle) = next.take_if(|(_, needle)| contains(frame, needle))?;
        drop(needle);
        Some(how)
    }
}

/// The replies of one connection, on their way to the client.
#[derive(Debug)]
pub(crate) struct Garbler {
    next: Next,
    unread: Vec<u8>,
    held: Option<Vec<u8>>,
}

/// What to pass on, and whether the connection ends after it.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_cut: bool,
}

impl Garbler {
    pub(crate) fn new(next: Next) -> Self {
        Self {
            next,
            unread: Vec::new(),
            held: None,
        }
    }

    pub(crate) fn pass(&mut self, bytes: &[u8]) -> Passed {
        self.unread.extend_from_slice(bytes);
        let mut passed = Passed::default();
        while let Some(length) = frame(&self.unread) {
            let rest = self.unread.split_off(length);
            let mut reply = std::mem::replace(&mut self.unread, rest);
            match self.next.take_for(&reply) {
                Some(Garble::Lose) => continue,
                Some(Garble::Double) => passed.bytes.extend_from_slice(&reply),
                Some(Garble::Swap) => {
                    self.held = Some(reply);
                    continue;
                }
                Some(Garble::Cut) => {
                    passed.bytes.extend_from_slice(&reply[..length / 2]);
                    passed.is_cut = true;
                    return passed;
                }
                Some(Garble::Scramble) => reply[0] = b'?',
                None => {}
            }
            passed.bytes.append(&mut reply);
            passed.bytes.extend(self.held.take().into_iter().flatten());
        }
        passed
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || bytes.windows(needle.len()).any(|window| window == needle)
}

/// The length of the first reply, once all of it is there.
fn frame(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|window| window == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    let parts = |count: i64| (0..count.max(0)).try_fold(line, |at, _| Some(at + frame(&bytes[at..])?));
    match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = match number()? {
                length if length < 0 => line,
                length => line + usize::try_from(length).ok()? + 2,
            };
            (end <= bytes.len()).then_some(end)
        }
        b'*' | b'~' | b'>' => parts(number()?),
        b'%' | b'|' => parts(2 * number()?),
        _ => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart() {
        for reply in [
            &b"+OK\r\n"[..],
            b":3\r\n",
            b"$-1\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n_\r\n",
            b"%1\r\n+a\r\n:1\r\n",
        ] {
            let mut bytes = reply.to_vec();
            bytes.extend_from_slice(b"+next\r\n");
            assert_eq!(frame(&bytes), Some(reply.len()));
            for end in 0..reply.len() {
                assert_eq!(frame(&reply[..end]), None);
            }
        }
    }

    #[test]
    fn one_reply_is_garbled() {
        for (how, expected) in [
            (Garble::Lose, &b"+a\r\n+c\r\n"[..]),
            (Garble::Double, b"+a\r\n+b\r\n+b\r\n+c\r\n"),
            (Garble::Swap, b"+a\r\n+c\r\n+b\r\n"),
            (Garble::Scramble, b"+a\r\n?b\r\n+c\r\n"),
        ] {
            let next = Next::default();
            next.set(how, b"b");
            let passed = Garbler::new(next.clone()).pass(b"+a\r\n+b\r\n+c\r\n");
            assert_eq!(passed.bytes, expected, "{how:?}");
            assert!(next.is_done());
        }
    }
}
