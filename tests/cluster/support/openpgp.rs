//! An OpenPGP key that signs commits as `git commit -S` does, so that no test needs GnuPG (RFC 4880 and RFC 9580,
//! version 4, `EdDSA` over SHA-256).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// 2024-01-01.
const CREATED: u32 = 1_704_067_200;
const EDDSA: u8 = 22;
const SHA256: u8 = 8;
/// Type, flags and key ID of the signatures that are made here.
const OF_DATA: u8 = 0x00;
const OF_USER: u8 = 0x13;

pub(crate) struct Pgp {
    key: SigningKey,
    user: String,
}

impl Pgp {
    pub(crate) fn new(seed: u8, user: &str) -> Self {
        Self {
            key: SigningKey::from_bytes(&[seed; 32]),
            user: user.to_owned(),
        }
    }

    pub(crate) fn fingerprint(&self) -> String {
        linesman::keys::hex(&self.print()).to_ascii_uppercase()
    }

    /// The armored public key with one user ID, certified by itself.
    pub(crate) fn public(&self) -> String {
        let body = self.body();
        let mut certified = self.framed_body();
        certified.push(0xb4);
        certified.extend(u32::try_from(self.user.len()).unwrap().to_be_bytes());
        certified.extend(self.user.as_bytes());
        let parts = [
            packet(6, &body),
            packet(13, self.user.as_bytes()),
            packet(2, &self.signature(OF_USER, &certified)),
        ];
        armored("PGP PUBLIC KEY BLOCK", &parts.concat())
    }

    /// An armored detached signature.
    pub(crate) fn sign(&self, data: &[u8]) -> String {
        let signature = self.signature(OF_DATA, data);
        armored("PGP SIGNATURE", &packet(2, &signature))
    }

    fn body(&self) -> Vec<u8> {
        let mut body = vec![4];
        body.extend(CREATED.to_be_bytes());
        // The algorithm, the curve's object identifier, and the point with its prefix as an integer of 263 bits.
        body.extend([
            EDDSA, 9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01,
        ]);
        body.extend(263_u16.to_be_bytes());
        body.push(0x40);
        body.extend(self.key.verifying_key().as_bytes());
        body
    }

    fn framed_body(&self) -> Vec<u8> {
        let body = self.body();
        let mut framed = vec![0x99];
        framed.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        framed.extend(body);
        framed
    }

    fn print(&self) -> [u8; 20] {
        Sha1::digest(self.framed_body()).into()
    }

    fn signature(&self, of: u8, data: &[u8]) -> Vec<u8> {
        let print = self.print();
        let mut hashed = vec![22, 33, 4];
        hashed.extend(print);
        hashed.extend([5, 2]);
        hashed.extend((CREATED + 1).to_be_bytes());
        if of == OF_USER {
            // It may certify and sign.
            hashed.extend([2, 27, 0x03]);
        }
        let mut signature = vec![4, of, EDDSA, SHA256];
        signature.extend(u16::try_from(hashed.len()).unwrap().to_be_bytes());
        signature.extend(hashed);
        let mut digest = Sha256::new();
        digest.update(data);
        digest.update(&signature);
        digest.update([4, 0xff]);
        digest.update(u32::try_from(signature.len()).unwrap().to_be_bytes());
        let digest = digest.finalize();
        signature.extend(10_u16.to_be_bytes());
        signature.extend([9, 16]);
        signature.extend(&print[12..]);
        signature.extend(&digest[..2]);
        let made = self.key.sign(&digest).to_bytes();
        for half in made.chunks(32) {
            signature.extend(integer(half));
        }
        signature
    }
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    let digits = &bytes[zeros..];
    let first = digits.first().map_or(8, |b| b.leading_zeros());
    let bits = u32::try_from(digits.len() * 8).unwrap() - first;
    let mut integer = u16::try_from(bits).unwrap().to_be_bytes().to_vec();
    integer.extend(digits);
    integer
}

fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0 | tag, 0xff];
    packet.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    packet.extend(body);
    packet
}

fn armored(kind: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN {kind}-----\n\n{}\n-----END {kind}-----\n",
        lines.join("\n")
    )
}
