use super::*;

/// Made with `ssh-keygen`; the private halves are gone.
pub(in crate::hub::signers) const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPfRsgHTXlezqTkJI6jWT7JdQ7CTJ/GEb1EZcL/YRJ81 ada@example.org";
pub(in crate::hub::signers) const PRINT_OF_KEY: &str =
    "SHA256:hL4qR53NGMkq5FwsxkCUEnvC+K0gnyFAAzu6nq6GTQE";
pub(in crate::hub::signers) const SIGNED: &str = "\
-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAg99GyAdNeV7OpOQkjqNZPsl1DsJ
Mn8YRvURlwv9hEnzUAAAADZ2l0AAAAAAAAAAZzaGE1MTIAAABTAAAAC3NzaC1lZDI1NTE5
AAAAQJSGk9kcxaC5D/jU1pKg3yCpQQeYNhNWHBqW2UiMm/6/rerQRkzZ8gJotbPrLxw19n
5o5e5xaP2QbAWt9/Yk7Ac=
-----END SSH SIGNATURE-----";
const ECDSA: &str = "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAGRbAntIcsQFkxUYATWPqWKwVQdACIk+wSZjVvzS5Her8kGW89uV4VNWs2RUIHnOEWccl0rvvdWbFbjbwnS8mhRZAGjEPaCAVXDbQdQ3F4BkRmPJgfKAdwCRYnWbjFh+7zlHbjzN1zrGcx9Wpyuf62tH1nBHbyvx1mcJilQ4BtZIc8/8Q== ada@example.org";
const SIGNED_BY_ECDSA: &str = "\
-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAAKwAAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAAhuaXN0cDUyMQAAAI
UEAZFsCe0hyxAWTFRgBNY+pYrBVB0AIiT7BJmNW/NLkd6vyQZbz25XhU1azZFQgec4RZxy
XSu+91ZsVuNvCdLyaFFkAaMQ9oIBVcNtB1DcXgGRGY8mB8oB3AJFidZuMWH7vOUduPM3XO
sZzH1anK5/ra0fWcEdvK/HWZwmKVDgG1khzz/xAAAAA2dpdAAAAAAAAAAGc2hhNTEyAAAA
pwAAABNlY2RzYS1zaGEyLW5pc3RwNTIxAAAAjAAAAEIBgmQyzax0WFxM6bnBqN4ieFJ9h8
TPHgRkyDqwpYl8mUjdTG7JvHpT0T94uraioYusMKbVfN+p156z6bDp+KhG758AAABCAacR
49j4+gbjkbXndrJJ0vtXrZiuBIko49duOYbqX9dilAyISFYJOOWe3r6PzvgDKMpBaMmc8g
iLn2n5XE4rCeK8
-----END SSH SIGNATURE-----";
const SHORT: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC4E4vR7Ci20E5ASpe+e5n+B3nKKAqGDuzEevaphVOkfiEII7NdyXo9gGk+ppS6vJUBVElfDysjxE6iuhLlFy2YAFPe54tV/G9tN9/QT8HkhBKLORDVAJsx31EmkeKZbCyykbO3j7WAoRKEDHcfAqnswoMk1UjpgVVk4okelMymkw== ada@example.org";

#[test]
fn a_key_is_read_and_its_signatures_name_it() {
    let key = public_key(KEY).unwrap();
    let expected = Key {
        fingerprint: PRINT_OF_KEY.to_owned(),
        subkeys: Vec::new(),
        user: "ada@example.org".to_owned(),
    };
    assert_eq!(key, expected);
    assert_eq!(issuer(SIGNED).as_deref(), Some(PRINT_OF_KEY));
    assert!(key.made(PRINT_OF_KEY));
    let other = public_key(ECDSA).unwrap();
    let print = "SHA256:T+lgG7mPzIfTJyOEzNI6ug8OT2GyQm6aNfeNnhJl9es";
    assert_eq!(other.fingerprint, print);
    assert_eq!(issuer(SIGNED_BY_ECDSA).as_deref(), Some(print));
    assert!(!other.made(PRINT_OF_KEY));
}

/// What clusters could not verify with is not taken, in words that say why.
#[test]
fn what_is_no_key_that_flux_verifies_with_is_refused() {
    let two = format!("{KEY}\n{ECDSA}");
    let blank = KEY.replace(" ada", "\u{a0}ada");
    for (text, expected) in [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", Error::Private),
        (two.as_str(), Error::Several),
        ("ssh-ed25519", Error::Damaged),
        ("ssh-ed25519 AAAA", Error::Damaged),
        (blank.as_str(), Error::Damaged),
        ("ssh-dss AAAA", Error::Kind("ssh-dss".to_owned())),
        (
            "sk-ssh-ed25519@openssh.com AAAA",
            Error::Kind("sk-ssh-ed25519@openssh.com".to_owned()),
        ),
        (
            "ssh-ed25519-cert-v01@openssh.com AAAA",
            Error::Kind("ssh-ed25519-cert-v01@openssh.com".to_owned()),
        ),
        (SHORT, Error::Short(1024)),
    ] {
        assert!(is_meant(text), "{text}");
        assert_eq!(public_key(text), Err(expected), "{text}");
    }
    assert!(!is_meant("-----BEGIN PGP PUBLIC KEY BLOCK-----"));
}

#[test]
fn what_is_cut_names_nobody() {
    for end in 0..SIGNED.len() {
        assert_eq!(issuer(&SIGNED[..end]), None, "{end}");
    }
    let text = |bytes: &[u8]| format!("{BEGIN}\n{}\n{END}", STANDARD.encode(bytes));
    for bytes in [
        &b"SSHSIG"[..],
        b"SSHSIG\0\0\0\x02\0\0\0\0",
        b"SSHSIG\0\0\0\x01\xff\xff\xff\xff",
    ] {
        assert_eq!(issuer(&text(bytes)), None);
    }
}
