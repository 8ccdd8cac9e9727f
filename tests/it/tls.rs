//! A server's certificate that nobody but the test trusts.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// Serves 127.0.0.1; and the certificate in PEM, for who shall trust it.
pub(crate) fn loopback() -> (TlsAcceptor, String) {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}
