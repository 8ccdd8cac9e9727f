//! What has to be kept readable (a provider's refresh token), sealed with AES-256-GCM under a key in the data
//! directory: a copy of the database alone gives none of it away.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

use crate::secret::Secret;

/// The sealing key. Each box has a nonce of its own and is good for the record that it was made for.
pub struct Seal(RandomizedNonceKey);

impl Seal {
    pub fn new(key: &Secret<[u8; 32]>) -> Self {
        Self(RandomizedNonceKey::new(&AES_256_GCM, key.expose()).expect("the key has 32 bytes"))
    }

    pub fn close(&self, record: &str, text: &Secret<String>) -> Vec<u8> {
        let mut sealed = text.expose().as_bytes().to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(record.as_bytes()), &mut sealed)
            .expect("AES-256-GCM takes a text of a few kilobytes");
        let mut whole = nonce.as_ref().to_vec();
        whole.append(&mut sealed);
        whole
    }

    /// None = not sealed with this key for this record.
    pub fn open(&self, record: &str, sealed: &[u8]) -> Option<Secret<String>> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let open = self
            .0
            .open_in_place(nonce, Aad::from(record.as_bytes()), &mut text);
        let text = open.ok()?.to_vec();
        String::from_utf8(text).ok().map(Secret::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_opens_with_its_key_for_its_record_only() {
        let [seal, other] = [1, 2].map(|n| Seal::new(&Secret::new([n; 32])));
        let text = Secret::new("refresh".to_owned());
        let sealed = seal.close("s1", &text);
        assert_ne!(sealed, seal.close("s1", &text));
        assert_eq!(seal.open("s1", &sealed), Some(text));
        assert_eq!(seal.open("s2", &sealed), None);
        assert_eq!(other.open("s1", &sealed), None);
        assert_eq!(seal.open("s1", &sealed[..5]), None);
    }
}
