use proptest::prelude::*;

use super::*;

/// Feeds `bytes` in pieces of at most `piece` and gives all that was read, up to the error.
fn read(role: Role, mut bytes: &[u8], piece: usize) -> (Vec<Received>, Option<Broken>) {
    let mut reader = Reader::new(role);
    let mut all = Vec::new();
    loop {
        match reader.poll() {
            Ok(Some(received)) => all.push(received),
            Err(error) => return (all, Some(error)),
            Ok(None) if bytes.is_empty() => return (all, None),
            Ok(None) => {
                let len = if let Some((body, missing)) = reader.direct() {
                    let len = piece.min(bytes.len()).min(missing);
                    body.extend_from_slice(&bytes[..len]);
                    len
                } else {
                    let space = reader.space();
                    let len = piece.min(bytes.len()).min(space.len());
                    space[..len].copy_from_slice(&bytes[..len]);
                    reader.filled(len);
                    len
                };
                bytes = &bytes[len..];
            }
        }
    }
}

fn sealed(payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = vec![0; SPACE];
    out.extend_from_slice(payload);
    let start = seal(&mut out, key);
    out.split_off(start)
}

proptest! {
    /// However the connection cuts it: the messages that were sealed come out, with control frames between.
    #[test]
    fn messages_survive_any_cutting(
        lens in proptest::collection::vec(prop_oneof![0..300_usize, 60_000..65_536_usize], 1..6),
        piece in prop_oneof![1..40_usize, 900..70_000_usize],
        masked in any::<bool>(),
    ) {
        let key = masked.then_some([1, 2, 3, 4]);
        let role = if masked { Role::Hub } else { Role::Agent };
        let (mut wire, mut expected) = (Vec::new(), Vec::new());
        for (n, len) in lens.into_iter().enumerate() {
            let payload: Vec<u8> = (0..len).map(|at| u8::try_from((at * 7 + n) % 251).unwrap()).collect();
            wire.extend_from_slice(&sealed(&payload, key));
            wire.extend_from_slice(&control_frame(PING, &[u8::try_from(n).unwrap()], key));
            expected.push(Received::Message(payload.into()));
            expected.push(Received::Ping(vec![u8::try_from(n).unwrap()].into()));
        }
        wire.extend_from_slice(&closing(1001, key));
        expected.push(Received::Close(Some(1001)));
        prop_assert_eq!(read(role, &wire, piece), (expected, None));
    }

    /// Whatever arrives: no panic, and no more memory than a message.
    #[test]
    fn noise_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for role in [Role::Hub, Role::Agent] {
            let (all, _) = read(role, &bytes, 7);
            prop_assert!(all.len() <= bytes.len());
        }
    }
}

#[test]
fn parts_of_a_message_are_joined() {
    let wire = [&[0x02, 2, 1, 2][..], &[0x89, 1, 9], &[0x80, 1, 3]].concat();
    let expected = vec![
        Received::Ping(Bytes::from_static(&[9])),
        Received::Message(Bytes::from_static(&[1, 2, 3])),
    ];
    assert_eq!(read(Role::Agent, &wire, 1), (expected, None));
}

/// L46
#[test]
fn broken_framing_is_named_with_its_close_code() {
    let long = [&[0x82, 127][..], &65_537_u64.to_be_bytes()].concat();
    let endless = [&[0x82, 127][..], &u64::MAX.to_be_bytes()].concat();
    for (role, bytes, code) in [
        (Role::Agent, &[0x81, 1, b'a'][..], close::PROTOCOL),
        (Role::Hub, &[0x82, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x82, 0x81, 0, 0, 0, 0, 0], close::PROTOCOL),
        (Role::Agent, &[0xc2, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x83, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x09, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x89, 126, 0, 126], close::PROTOCOL),
        (Role::Agent, &[0x80, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x02, 1, 0, 0x82, 1, 0], close::PROTOCOL),
        (Role::Agent, &[0x82, 126, 0, 5], close::PROTOCOL),
        (Role::Agent, &[0x88, 1, 3], close::PROTOCOL),
        (Role::Agent, &[0x88, 2, 0x03, 0xe7], close::PROTOCOL),
        (Role::Agent, &[0x88, 2, 0x03, 0xed], close::PROTOCOL),
        (Role::Agent, &[0x88, 2, 0x0b, 0xb7], close::PROTOCOL),
        (Role::Agent, &[0x88, 2, 0x13, 0x88], close::PROTOCOL),
        (Role::Agent, &long, close::SIZE),
        (Role::Agent, &endless, close::PROTOCOL),
    ] {
        let (all, error) = read(role, bytes, 3);
        assert_eq!(
            (all, error.map(|e| e.code)),
            (vec![], Some(code)),
            "{bytes:x?}"
        );
    }
}

#[test]
fn parts_add_up_to_the_limit_at_most() {
    let part = |first: u8, len: u16| {
        let mut part = vec![first, 126];
        part.extend_from_slice(&len.to_be_bytes());
        part.resize(4 + usize::from(len), 0);
        part
    };
    let wire = [part(0x02, 60_000), part(0x80, 6000)].concat();
    let (all, error) = read(Role::Agent, &wire, 9999);
    assert_eq!((all, error.map(|e| e.code)), (vec![], Some(close::SIZE)));
}
