//! The bytes of an answer that were received and are not read yet.
//!
//! They stay below a bound, whatever a server sends.

use super::AnswerError;

/// The most bytes that are buffered: far more than a server accepts for one object.
pub(super) const MAX_BUFFERED: usize = 32 << 20;

/// Received bytes.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// How many of the bytes are read.
    read: usize,
}

impl Buffer {
    /// Appends received bytes.
    pub(super) fn push(&mut self, received: &[u8]) -> Result<(), AnswerError> {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.len() + received.len() > MAX_BUFFERED {
            return Err(AnswerError::TooLarge);
        }
        self.bytes.extend_from_slice(received);
        Ok(())
    }

    /// The bytes that are not read yet.
    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.read..).unwrap_or_default()
    }

    /// Marks `count` more bytes as read.
    pub(super) fn advance(&mut self, count: usize) {
        self.read = self.read.saturating_add(count).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_bytes_do_not_count() {
        let mut buffer = Buffer::default();
        for _ in 0..3 {
            buffer.push(&vec![b'x'; MAX_BUFFERED - 1]).unwrap();
            buffer.advance(MAX_BUFFERED - 2);
            assert_eq!(buffer.unread(), b"x");
            buffer.advance(1);
        }
    }

    #[test]
    fn an_object_without_end_is_not_buffered_for_ever() {
        let (mut buffer, more) = (Buffer::default(), vec![b'x'; 1 << 20]);
        let taken = (0..64).take_while(|_| buffer.push(&more).is_ok()).count();
        assert_eq!(taken, 32);
    }
}
