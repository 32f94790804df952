//! Protobuf's wire format: numbered fields, one after the other.
//!
//! For any bytes, each step consumes some of them, ends the message or is a [`Fault`].

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes are missing at the end.
    #[error("cut short")]
    CutShort,
    /// An integer of more than 64 bits, or a field with the number 0.
    #[error("not protobuf")]
    NotProtobuf,
    /// Another type than the field has in Kubernetes.
    #[error("field {0} is of an unexpected type")]
    UnexpectedType(u64),
    /// A field that may occur once, or elements of a list that are not consecutive.
    #[error("field {0} comes a second time")]
    Repeated(u64),
    /// A time outside of the years that RFC 3339 can express.
    #[error("a time out of range")]
    Time,
    /// Not the fields that the view expects.
    #[error("not the expected fields")]
    Unexpected,
}

impl serde::de::Error for Fault {
    /// Drops the message, because it may hold content.
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self::Unexpected
    }
}

/// The content of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// An integer or a boolean.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed-size number; Kubernetes uses none.
    Fixed,
}

impl<'a> Content<'a> {
    /// The bytes of the field `number`.
    pub(crate) fn bytes(self, number: u64) -> Result<&'a [u8], Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed => Err(Fault::UnexpectedType(number)),
        }
    }

    /// The integer of the field `number`.
    pub(crate) fn number(self, number: u64) -> Result<u64, Fault> {
        match self {
            Self::Number(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed => Err(Fault::UnexpectedType(number)),
        }
    }
}

/// Reads the fields of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

/// The number, type and length of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The field's number.
    pub(crate) number: u64,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Varint,
    Bytes { length: usize },
    Fixed { length: usize },
}

impl Head {
    /// The length of the field's bytes.
    pub(crate) fn length(self) -> Result<usize, Fault> {
        match self.form {
            Form::Bytes { length } => Ok(length),
            Form::Varint | Form::Fixed { .. } => Err(Fault::UnexpectedType(self.number)),
        }
    }
}

impl<'a> Fields<'a> {
    /// The fields of the message `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number of bytes that are not read yet.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads the next field; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Content<'a>)>, Fault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let head = self.head()?;
        let content = match head.form {
            Form::Varint => Content::Number(self.varint()?),
            Form::Bytes { length } => Content::Bytes(self.take(length)?),
            Form::Fixed { length } => self.take(length).map(|_| Content::Fixed)?,
        };
        Ok(Some((head.number, content)))
    }

    /// Reads the next field if its number is `number`.
    pub(crate) fn next_of(&mut self, number: u64) -> Result<Option<Content<'a>>, Fault> {
        let mut ahead = *self;
        match ahead.next()? {
            Some((found, content)) if found == number => {
                *self = ahead;
                Ok(Some(content))
            }
            _ => Ok(None),
        }
    }

    /// Reads the head of the next field.
    #[inline]
    pub(crate) fn head(&mut self) -> Result<Head, Fault> {
        let key = self.varint()?;
        let number = key >> 3;
        let form = match key & 7 {
            _ if number == 0 => return Err(Fault::NotProtobuf),
            0 => Form::Varint,
            1 => Form::Fixed { length: 8 },
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Fault::NotProtobuf)?;
                Form::Bytes { length }
            }
            5 => Form::Fixed { length: 4 },
            _ => return Err(Fault::UnexpectedType(number)),
        };
        Ok(Head { number, form })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Fault::CutShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads an integer in groups of seven bits, the lowest first. Most have one group.
    #[inline]
    fn varint(&mut self) -> Result<u64, Fault> {
        match self.0.split_first() {
            Some((byte, rest)) if *byte < 0x80 => {
                self.0 = rest;
                Ok((*byte).into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Fault::CutShort)?;
            self.0 = rest;
            let group = u64::from(byte & 0x7f);
            // Of the tenth group only one bit is left.
            if shift == 63 && group > 1 {
                break;
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::NotProtobuf)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// One field of each type.
    #[derive(Clone, PartialEq, Message)]
    struct Sample {
        #[prost(uint64, optional, tag = "1")]
        number: Option<u64>,
        #[prost(fixed64, optional, tag = "2")]
        eight: Option<u64>,
        #[prost(bytes = "vec", optional, tag = "16")]
        bytes: Option<Vec<u8>>,
        #[prost(fixed32, optional, tag = "536870911")]
        four: Option<u32>,
    }

    /// Reads all fields.
    fn read(bytes: &[u8]) -> Result<Vec<(u64, Content<'_>)>, Fault> {
        let mut fields = Fields::of(bytes);
        let mut read = Vec::new();
        while let Some(field) = fields.next()? {
            read.push(field);
        }
        Ok(read)
    }

    #[test]
    fn invalid_messages_are_faults() {
        for (bytes, fault) in [
            (&[0x08][..], Fault::CutShort),
            (&[0x80], Fault::CutShort),
            (&[0x12, 2, 0], Fault::CutShort),
            (&[0x0d, 0, 0, 0], Fault::CutShort),
            (&[0x00, 0], Fault::NotProtobuf),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], Fault::NotProtobuf),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 129, 0], Fault::NotProtobuf),
            (&[0x0b], Fault::UnexpectedType(1)),
            (&[0x16], Fault::UnexpectedType(2)),
        ] {
            assert_eq!(read(bytes), Err(fault), "{bytes:?}");
        }
    }

    #[test]
    fn next_of_reads_only_the_requested_field() {
        let mut fields = Fields::of(&[0x08, 5, 0x08, 6, 0x10, 7]);
        assert_eq!(fields.next_of(2), Ok(None));
        assert_eq!(fields.next_of(1), Ok(Some(Content::Number(5))));
        assert_eq!(fields.next_of(1), Ok(Some(Content::Number(6))));
        assert_eq!(fields.next_of(1), Ok(None));
        assert_eq!(fields.next(), Ok(Some((2, Content::Number(7)))));
        assert_eq!((fields.next_of(2), fields.next()), (Ok(None), Ok(None)));
    }

    proptest! {
        #[test]
        fn messages_of_prost_are_read(
            number in any::<Option<u64>>(),
            bytes in any::<Option<Vec<u8>>>(),
            eight in any::<Option<u64>>(),
            four in any::<Option<u32>>(),
        ) {
            let sample = Sample { number, eight, bytes, four };
            let written = sample.encode_to_vec();
            let fields = [
                sample.number.map(|number| (1, Content::Number(number))),
                sample.eight.map(|_| (2, Content::Fixed)),
                sample.bytes.as_deref().map(|bytes| (16, Content::Bytes(bytes))),
                sample.four.map(|_| (536_870_911, Content::Fixed)),
            ];
            prop_assert_eq!(read(&written), Ok(fields.into_iter().flatten().collect()));
        }

        /// `prost` refuses more (field numbers beyond 2^29, wrong UTF-8), never less.
        #[test]
        fn messages_that_we_refuse_are_invalid_for_prost(bytes in any::<Vec<u8>>()) {
            let ours = read(&bytes);
            // Groups are the one type that only prost knows.
            if ours.is_err() && !matches!(ours, Err(Fault::UnexpectedType(_))) {
                prop_assert!(Sample::decode(&*bytes).is_err());
            }
        }
    }
}
