use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

fn encoded(frame: &Frame) -> Bytes {
    let mut out = BytesMut::new();
    encode(frame, &mut out);
    out.freeze()
}

fn decoded(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut message = Bytes::copy_from_slice(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decode(&mut message)? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn the_layout_on_the_wire_is_fixed() {
    let open = Frame::Open(Open {
        id: 2,
        kind: Kind::Api,
        class: Class::Normal,
        window: 65_536,
        meta: Bytes::from_static(b"{}"),
    });
    assert_eq!(
        &encoded(&open)[..],
        b"\x10\0\0\0\x08\0\0\0\x02\x01\0\0\x01\0\0{}"
    );
    assert_eq!(
        &encoded(&Frame::Credit { id: 3, amount: 7 })[..],
        b"\x12\0\0\0\x04\0\0\0\x03\0\0\0\x07"
    );
    let rst = Frame::Rst {
        id: 1,
        code: Code::Dns,
        text: "no".into(),
    };
    assert_eq!(&encoded(&rst)[..], b"\x14\0\0\0\x04\0\0\0\x01\0\x12no");
    assert_eq!(
        &encoded(&Frame::Ping(1))[..],
        b"\x20\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\x01"
    );
}

#[test]
fn hostile_bytes_are_refused_by_name() {
    let cases: &[(&[u8], FrameError)] = &[
        (b"\x11\0\0\0\x01\0\0\0", FrameError::Truncated),
        (b"\x11\0\0\0\x02\0\0\0\x01x", FrameError::Truncated),
        (
            b"\x11\0\xff\xff\xff\0\0\0\x01",
            FrameError::TooLong(0xff_ffff),
        ),
        (b"\x11\0\0\x40\x01\0\0\0\x01", FrameError::TooLong(16_385)),
        (b"\x7f\0\0\0\0\0\0\0\0", FrameError::Type(0x7f)),
        (
            b"\x11\0\0\0\0\0\0\0\0",
            FrameError::Stream { kind: 0x11, id: 0 },
        ),
        (
            b"\x13\0\0\0\0\x80\0\0\0",
            FrameError::Stream {
                kind: 0x13,
                id: 1 << 31,
            },
        ),
        (
            b"\x20\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0\0",
            FrameError::Stream { kind: 0x20, id: 1 },
        ),
        (b"\x12\0\0\0\x03\0\0\0\x01abc", FrameError::Size(0x12)),
        (b"\x10\0\0\0\x05\0\0\0\x01abcde", FrameError::Size(0x10)),
    ];
    for (bytes, error) in cases {
        assert_eq!(decoded(bytes), Err(*error), "{bytes:?}");
    }
}

#[test]
fn frames_of_a_newer_peer_are_skipped() {
    assert_eq!(
        decoded(b"\x90\xff\0\0\x02\0\0\0\x09ab\x13\x55\0\0\0\0\0\0\x01"),
        Ok(vec![Frame::Skipped, Frame::Fin { id: 1 }])
    );
}

#[test]
fn a_long_text_is_clipped_between_characters() {
    let text = format!("{}é", "x".repeat(511));
    let frame = encoded(&Frame::Rst {
        id: 1,
        code: Code::None,
        text,
    });
    assert_eq!(frame.len(), HEADER + 2 + 511);
    assert!(decoded(&frame).is_ok());
}

fn frames() -> impl Strategy<Value = Frame> {
    let id = 1..=MAX_ID;
    let code = any::<u16>().prop_map(Code::from);
    let text = "[a-zé ]{0,200}";
    let body = proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    prop_oneof![
        body.clone().prop_map(Frame::Challenge),
        body.clone().prop_map(Frame::Hello),
        body.clone().prop_map(Frame::Welcome),
        (code.clone(), any::<u32>(), text).prop_map(|(code, retry_after_ms, text)| Frame::Refuse(
            Refusal {
                code,
                retry_after_ms,
                text
            }
        )),
        (
            id.clone(),
            any::<u8>(),
            any::<bool>(),
            any::<u32>(),
            body.clone()
        )
            .prop_map(|(id, kind, background, window, meta)| {
                let class = if background {
                    Class::Background
                } else {
                    Class::Normal
                };
                Frame::Open(Open {
                    id,
                    kind: kind.into(),
                    class,
                    window,
                    meta,
                })
            }),
        (id.clone(), body).prop_map(|(id, payload)| Frame::Data { id, payload }),
        (id.clone(), any::<u32>()).prop_map(|(id, amount)| Frame::Credit { id, amount }),
        id.clone().prop_map(|id| Frame::Fin { id }),
        (id.clone(), code.clone(), text).prop_map(|(id, code, text)| Frame::Rst { id, code, text }),
        (id, code.clone()).prop_map(|(id, code)| Frame::Stop { id, code }),
        any::<u64>().prop_map(Frame::Ping),
        any::<u64>().prop_map(Frame::Pong),
        (code, any::<u32>(), any::<u32>(), text).prop_map(
            |(code, retry_after_ms, drain_ms, text)| Frame::Goaway(Goaway {
                code,
                retry_after_ms,
                drain_ms,
                text
            })
        ),
    ]
}

proptest! {
    #[test]
    fn frames_round_trip(frames in proptest::collection::vec(frames(), 0..8)) {
        let mut out = BytesMut::new();
        for frame in &frames {
            let before = out.len();
            encode(frame, &mut out);
            prop_assert_eq!(out.len() - before, encoded_len(frame));
        }
        prop_assert_eq!(decoded(&out), Ok(frames));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(decoded(&bytes));
    }
}
