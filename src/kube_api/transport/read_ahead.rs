//! A connection that is read in larger pieces than its reader asks for.
//!
//! Owns a buffer between a connection and `rustls`, which asks the system for 4 KiB at a time, a quarter of
//! a record: of 100,000 objects each such question costs more than copying what it brings once
//! more. Promises that all bytes pass unchanged and in order, that whatever has come is passed on before
//! more is waited for, and that a connection which waits holds no buffer. Leaves writing to the
//! connection.

use std::{
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// The most that is read at once, in bytes: two records of TLS.
const PIECE: usize = 32 << 10;

/// A connection with what is read of it and not passed on yet.
#[derive(Debug)]
pub(super) struct ReadAhead<T> {
    connection: T,
    /// Empty while there is nothing to read.
    buffer: Vec<u8>,
    /// Where in it stands what is not passed on yet.
    ahead: Range<usize>,
}

impl<T: Read + Unpin> ReadAhead<T> {
    pub(super) fn new(connection: T) -> Self {
        Self { connection, buffer: Vec::new(), ahead: 0..0 }
    }

    /// Fills the buffer; nothing comes at the connection's end.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.buffer.resize(PIECE, 0);
        let mut piece = ReadBuf::new(&mut self.buffer);
        match Pin::new(&mut self.connection).poll_read(context, piece.unfilled()) {
            Poll::Ready(read) => {
                self.ahead = 0..piece.filled().len();
                Poll::Ready(read)
            }
            Poll::Pending => {
                self.buffer = Vec::new();
                Poll::Pending
            }
        }
    }
}

impl<T: Read + Unpin> Read for ReadAhead<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut wanted: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            ready!(self.fill(context))?;
        }
        let ahead = self.buffer.get(self.ahead.clone()).unwrap_or_default();
        let (passed, rest) = ahead.split_at(ahead.len().min(wanted.remaining()));
        wanted.put_slice(passed);
        self.ahead.start = self.ahead.end - rest.len();
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for ReadAhead<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, pieces)
    }
}

impl<T: Connection> Connection for ReadAhead<T> {
    fn connected(&self) -> Connected {
        self.connection.connected()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A connection, and its other end.
    fn connected() -> (TokioIo<ReadAhead<TokioIo<DuplexStream>>>, DuplexStream) {
        let (ours, theirs) = duplex(1 << 20);
        (TokioIo::new(ReadAhead::new(TokioIo::new(ours))), theirs)
    }

    #[tokio::test]
    async fn everything_passes_in_order_whatever_its_reader_asks_for() {
        let sent: Vec<u8> = (0..=250).cycle().take(3 * PIECE + 7).collect();
        for asked in [1, 4096, PIECE, 2 * PIECE] {
            let (mut ours, mut theirs) = connected();
            theirs.write_all(&sent).await.unwrap();
            drop(theirs);
            let (mut came, mut piece) = (Vec::new(), vec![0; asked]);
            loop {
                let count = ours.read(&mut piece).await.unwrap();
                if count == 0 {
                    break;
                }
                came.extend_from_slice(&piece[..count]);
            }
            assert!(came == sent, "{asked} at a time");
        }
    }

    #[tokio::test]
    async fn what_has_come_is_passed_on_before_more_is_waited_for() {
        let (mut ours, mut theirs) = connected();
        let mut two = [0; 2];
        theirs.write_all(b"abc").await.unwrap();
        assert_eq!(ours.read(&mut two).await.unwrap(), 2);
        assert_eq!(ours.read(&mut two).now_or_never().unwrap().unwrap(), 1);
        assert_eq!(&two, b"cb");
        assert!(ours.read(&mut two).now_or_never().is_none());
        theirs.write_all(b"d").await.unwrap();
        assert_eq!(ours.read(&mut two).await.unwrap(), 1);
        assert_eq!(&two, b"db");
    }

    #[tokio::test]
    async fn a_connection_that_waits_holds_no_buffer() {
        let (mut ours, mut theirs) = connected();
        let mut one = [0];
        theirs.write_all(b"ab").await.unwrap();
        ours.read_exact(&mut one).await.unwrap();
        assert_eq!(ours.inner().buffer.capacity(), PIECE);
        ours.read_exact(&mut one).await.unwrap();
        assert!(ours.read(&mut one).now_or_never().is_none());
        assert_eq!(ours.inner().buffer.capacity(), 0);
    }

    #[tokio::test]
    async fn what_is_written_goes_through() {
        let (mut ours, mut theirs) = connected();
        ours.write_all(b"to the server").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut came = String::new();
        theirs.read_to_string(&mut came).await.unwrap();
        assert_eq!(came, "to the server");
    }
}
