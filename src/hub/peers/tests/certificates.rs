use super::*;

/// L45
#[tokio::test]
async fn nobody_without_a_pinned_certificate_is_let_in() {
    let (a, b) = Replica::two().await;
    let pin = b.peer.cert_sha256;
    let stranger = Pair::new();
    assert!(let_in(b.address, a.pair.credential().client(pin).unwrap()).await);
    // Another certificate; the right one with another key; none; an older TLS; another protocol.
    let other = stranger.credential().client(pin).unwrap();
    let key = PrivateKeyDer::from(stranger.key.clone_key());
    let stolen = Credential::new(a.pair.cert.clone(), key).unwrap();
    let mut none = a.pair.credential().client(pin).unwrap();
    none.client_auth_cert_resolver = Arc::new(NoCert);
    let mut unspoken = a.pair.credential().client(pin).unwrap();
    unspoken.alpn_protocols = Vec::new();
    let mut web = a.pair.credential().client(pin).unwrap();
    web.alpn_protocols = vec![b"http/1.1".to_vec()];
    let old = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS12])
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_client_auth_cert(vec![a.pair.cert.clone()], a.pair.key.clone_key().into())
        .unwrap();
    for (what, config) in [
        ("another certificate", other),
        ("another key", stolen.client(pin).unwrap()),
        ("no certificate", none),
        ("no protocol", unspoken),
        ("HTTP", web),
        ("TLS 1.2", old),
    ] {
        assert!(!let_in(b.address, config).await, "{what}");
    }
    // One that was a replica once.
    b.peers.know(vec![b.peer.clone()]);
    assert!(!let_in(b.address, a.pair.credential().client(pin).unwrap()).await);
}

/// L45: the one who dials looks as closely.
#[tokio::test]
async fn nobody_without_a_pinned_certificate_is_spoken_to() {
    let (a, b) = Replica::two().await;
    let wrong = Peer {
        cert_sha256: keys::sha256(&a.pair.cert),
        ..b.peer.clone()
    };
    a.peers.know(vec![wrong]);
    assert!(matches!(a.open(&b, 7).await, Err(PeerError::Dial(_))));
    a.peers.know(Vec::new());
    assert!(matches!(a.open(&b, 7).await, Err(PeerError::Unknown)));
}

#[derive(Debug)]
struct NoCert;

impl rustls::client::ResolvesClientCert for NoCert {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Takes every server for the right one.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
