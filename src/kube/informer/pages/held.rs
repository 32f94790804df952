//! The bytes of an answer on their way to objects.
//!
//! Owns what has come and is not read yet. Promises that it stays below a bound, whatever a server
//! sends. Leaves what the bytes mean to the readers.

use super::Broken;

/// The most that is held of an answer, in bytes: far more than a server takes for one object.
pub(super) const MAX_HELD: usize = 32 << 20;

/// What has come of an answer and is not read yet.
#[derive(Default)]
pub(super) struct Held {
    bytes: Vec<u8>,
    /// So many of the bytes are read.
    read: usize,
}

impl Held {
    /// Takes in more bytes.
    pub(super) fn take_in(&mut self, came: &[u8]) -> Result<(), Broken> {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.len() + came.len() > MAX_HELD {
            return Err(Broken::TooLarge);
        }
        self.bytes.extend_from_slice(came);
        Ok(())
    }

    /// What is not read yet.
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.read..).unwrap_or_default()
    }

    /// So many bytes more are read.
    pub(super) fn advance(&mut self, count: usize) {
        self.read = self.read.saturating_add(count).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_makes_room_for_what_comes() {
        let mut held = Held::default();
        for _ in 0..3 {
            held.take_in(&vec![b'x'; MAX_HELD - 1]).unwrap();
            held.advance(MAX_HELD - 2);
            assert_eq!(held.rest(), b"x");
            held.advance(1);
        }
    }

    #[test]
    fn an_object_without_end_is_not_held_for_ever() {
        let (mut held, more) = (Held::default(), vec![b'x'; 1 << 20]);
        let taken = (0..64).take_while(|_| held.take_in(&more).is_ok()).count();
        assert_eq!(taken, 32);
    }
}
