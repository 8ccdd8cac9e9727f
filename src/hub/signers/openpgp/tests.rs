use proptest::prelude::*;

use super::*;

/// Made with GnuPG: an ed25519 key with a signing subkey, and a signature of that subkey. The private halves are gone.
const KEY: &str = "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawIRJxYJKwYBBAHaRw8BAQdA9HcYUDQwP/TCj0c7/kWzlBDzDvVO5p3nrSqr
pZegjTa0HUFkYSBFeGFtcGxlIDxhZGFAZXhhbXBsZS5vcmc+iJYEExYIAD4WIQSo
6XN3j6LTXwaKdn7D7iwzJQQnYwUCawIRJwIbAwUJh6O7GQULCQgHAgYVCgkICwIE
FgIDAQIeAQIXgAAKCRDD7iwzJQQnYzl3AQCPnYF00TjGgSOun0h2URqQ+KLOO4Hd
dLn6Np2s/5DKdwD+PQNt5M/EmJ/OsZl4HVM+y80IiUl9ROuCASNIKOJGiAu4MwRr
AhEnFgkrBgEEAdpHDwEBB0AkVDliIiWVkH6lUeIzWhyEF3NX8FFqM/ldfLw3GEfD
koj1BBgWCAAmFiEEqOlzd4+i018GinZ+w+4sMyUEJ2MFAmsCEScCGwIFCYejuxkA
gQkQw+4sMyUEJ2N2IAQZFggAHRYhBIlAm00eUotuuqjoO1tHU1SHMDCKBQJrAhEn
AAoJEFtHU1SHMDCKT5MBAPxRamUDqX9kAhyJq9x+FjfNHXF4M7RfAoxayBYj+/Dt
AP9TkWihJHnflPoaNAvMXaz4PGhrgS6LtJM07ZOyKQcyBY8AAP9VJisiss+QA4UE
JF/r6qXOyeqb773xZ97RuOrzJrb6+wD/Q9lGX+5/Db+Tc4YmoapQAzYnH53tYere
94/h4ejSWQc=
=g1DZ
-----END PGP PUBLIC KEY BLOCK-----";
const SIGNED: &str = "\
-----BEGIN PGP SIGNATURE-----

iHUEABYIAB0WIQSJQJtNHlKLbrqo6DtbR1NUhzAwigUCawIRJwAKCRBbR1NUhzAw
isjVAQCOfoG64JB7TF2eSeO/EiZYfEzPqXt+PUZl4f7vfWwxbgD/W0PFZoasI+0b
6VbBG4PnWuo8Iso6QUO8HIk1rsRt1wE=
=8O5J
-----END PGP SIGNATURE-----";

#[test]
fn a_key_is_read_with_its_subkeys_and_knows_its_signatures() {
    let key = public_key(KEY).unwrap();
    assert_eq!(
        key,
        Key {
            fingerprint: "A8E973778FA2D35F068A767EC3EE2C3325042763".to_owned(),
            subkeys: vec!["89409B4D1E528B6EBAA8E83B5B4753548730308A".to_owned()],
            user: "Ada Example <ada@example.org>".to_owned(),
        }
    );
    let by = issuer(SIGNED).unwrap();
    assert_eq!(by, key.subkeys[0]);
    assert!(key.made(&by) && key.made("5B4753548730308A") && key.made(&key.fingerprint));
    assert!(!key.made("0000000000000000") && !key.made("308A") && !key.made(""));
}

#[test]
fn what_is_no_single_public_key_is_refused_by_name() {
    let armor = |data: &str, kind: &str| {
        format!("-----BEGIN PGP {kind}-----\n\n{data}\n-----END PGP {kind}-----\n")
    };
    let block = |bytes: &[u8]| armor(&STANDARD.encode(bytes), "PUBLIC KEY BLOCK");
    let cases = [
        ("", Error::NoKey),
        ("ssh-ed25519 AAAA", Error::NoKey),
        (SIGNED, Error::NoKey),
        (&armor("AAAA", "PRIVATE KEY BLOCK"), Error::Private),
        (&format!("{KEY}{KEY}"), Error::Several),
        (&KEY[..400], Error::Damaged("it has no end")),
        (
            &armor("!", "PUBLIC KEY BLOCK"),
            Error::Damaged("its text is no base64"),
        ),
        (
            &block(&[0x98, 9, 4]),
            Error::Damaged("a part of it is cut short"),
        ),
        (&block(&[0x98, 1, 6]), Error::Version(6)),
        (&block(&[0x98, 0]), Error::Damaged("a key is empty")),
        // A subkey or a user ID alone.
        (&block(&[0xb4, 1, b'a']), Error::NoKey),
        // Two keys in one block.
        (&block(&[0x98, 1, 4, 0x98, 1, 4]), Error::Several),
    ];
    for (text, expected) in cases {
        assert_eq!(public_key(text), Err(expected), "{text}");
    }
    assert_eq!(issuer(KEY), None);
    assert_eq!(
        issuer("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----"),
        None
    );
}

proptest! {
    #[test]
    fn bytes_of_a_stranger_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let data = STANDARD.encode(&bytes);
        for kind in [PUBLIC_KEY, SIGNATURE] {
            let text = format!("-----BEGIN {kind}-----\n\n{data}\n-----END {kind}-----\n");
            drop(public_key(&text));
            drop(issuer(&text));
        }
    }
}
