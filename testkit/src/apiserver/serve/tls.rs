//! The certificates of a test server: an authority that lives as long as the server, and a certificate for this
//! machine's loopback names.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// A server's certificate and the authority behind it.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The authority's certificate in PEM, for the clients' trust stores.
    pub(crate) authority_pem: String,
    /// The server's certificate in PEM, for a server of another process.
    pub(crate) certificate_pem: String,
    /// The server's private key in PEM, for a server of another process.
    pub(crate) key_pem: String,
    /// What a TLS acceptor needs; offers HTTP/1.1 only.
    pub(crate) server: Arc<ServerConfig>,
}

impl Identity {
    /// A fresh authority and a server certificate for `127.0.0.1`, `::1` and `localhost`.
    pub(crate) fn generate() -> Result<Self, crate::Error> {
        let authority = CertifiedIssuer::self_signed(authority_params()?, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = server_params()?.signed_by(&key, &authority)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            authority_pem: authority.pem(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            server: Arc::new(server),
        })
    }
}

fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "testkit-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn server_params() -> Result<CertificateParams, rcgen::Error> {
    let names = ["127.0.0.1", "::1", "localhost"].map(String::from);
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}
