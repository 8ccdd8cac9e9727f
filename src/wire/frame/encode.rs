//! Frames as bytes.
#![deny(clippy::indexing_slicing, clippy::expect_used)]

use bytes::{BufMut, BytesMut};

use super::{
    CHALLENGE, CREDIT, Class, DATA, FIN, Frame, GOAWAY, Goaway, HEADER, HELLO, MAX_PAYLOAD, OPEN,
    OPEN_FIXED, OPTIONAL, PING, PONG, REFUSE, RST, Refusal, STOP, WELCOME, clip,
};

/// Bytes that `frame` takes on the wire.
pub fn encoded_len(frame: &Frame) -> usize {
    HEADER
        + match frame {
            Frame::Challenge(body) | Frame::Hello(body) | Frame::Welcome(body) => body.len(),
            Frame::Refuse(refusal) => 6 + clip(&refusal.text).len(),
            Frame::Open(open) => OPEN_FIXED + open.meta.len(),
            Frame::Data { payload, .. } => payload.len(),
            Frame::Credit { .. } => 4,
            Frame::Fin { .. } | Frame::Skipped => 0,
            Frame::Rst { text, .. } => 2 + clip(text).len(),
            Frame::Stop { .. } => 2,
            Frame::Ping(_) | Frame::Pong(_) => 8,
            Frame::Goaway(goaway) => 10 + clip(&goaway.text).len(),
        }
}

/// Appends `frame` to `out`. Payloads are within their limits where the caller kept [`MAX_PAYLOAD`] and
/// [`super::MAX_META`]; texts are clipped here.
pub fn encode(frame: &Frame, out: &mut BytesMut) {
    let len = encoded_len(frame) - HEADER;
    out.reserve(HEADER + len);
    match frame {
        Frame::Challenge(body) => line(CHALLENGE, body, out),
        Frame::Hello(body) => line(HELLO, body, out),
        Frame::Welcome(body) => line(WELCOME, body, out),
        Frame::Refuse(Refusal {
            code,
            retry_after_ms,
            text,
        }) => {
            header(REFUSE, len, 0, out);
            out.put_u16((*code).into());
            out.put_u32(*retry_after_ms);
            out.put_slice(clip(text).as_bytes());
        }
        Frame::Open(open) => {
            header(OPEN, len, open.id, out);
            out.put_u8(open.kind.byte());
            out.put_u8(u8::from(open.class == Class::Background));
            out.put_u32(open.window);
            out.put_slice(&open.meta);
        }
        Frame::Data { id, payload } => data(*id, payload, out),
        Frame::Credit { id, amount } => {
            header(CREDIT, len, *id, out);
            out.put_u32(*amount);
        }
        Frame::Fin { id } => header(FIN, len, *id, out),
        Frame::Rst { id, code, text } => {
            header(RST, len, *id, out);
            out.put_u16((*code).into());
            out.put_slice(clip(text).as_bytes());
        }
        Frame::Stop { id, code } => {
            header(STOP, len, *id, out);
            out.put_u16((*code).into());
        }
        Frame::Ping(serial) => line(PING, &serial.to_be_bytes(), out),
        Frame::Pong(serial) => line(PONG, &serial.to_be_bytes(), out),
        Frame::Goaway(Goaway {
            code,
            retry_after_ms,
            drain_ms,
            text,
        }) => {
            header(GOAWAY, len, 0, out);
            out.put_u16((*code).into());
            out.put_u32(*retry_after_ms);
            out.put_u32(*drain_ms);
            out.put_slice(clip(text).as_bytes());
        }
        Frame::Skipped => header(OPTIONAL, 0, 0, out),
    }
}

/// A DATA frame from a slice, without a `Bytes` in between.
pub fn data(id: u32, payload: &[u8], out: &mut BytesMut) {
    data_head(id, payload.len(), out);
    out.put_slice(payload);
}

/// The head of a DATA frame whose `len` bytes the caller adds to `out`.
pub fn data_head(id: u32, len: usize, out: &mut BytesMut) {
    header(DATA, len, id, out);
}

fn line(kind: u8, payload: &[u8], out: &mut BytesMut) {
    header(kind, payload.len(), 0, out);
    out.put_slice(payload);
}

fn header(kind: u8, len: usize, id: u32, out: &mut BytesMut) {
    debug_assert!(len <= MAX_PAYLOAD, "the caller keeps the limit");
    out.put_u8(kind);
    out.put_u8(0);
    out.put_uint(u64::try_from(len).unwrap_or_default(), 3);
    out.put_u32(id);
}
