//! The levels of TLS: none, some with any server, or only with a server that proves its name.

use std::sync::Arc;

use emmer_store_relational::TlsMode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connector for TLS; None with `sslmode=disable`. `root` is a file of trusted root certificates;
/// None: the system's.
///
/// Errors are words: a file that cannot be read, no root at all.
pub(crate) fn connector(
    mode: TlsMode,
    root: Option<&str>,
) -> Result<Option<MakeRustlsConnect>, String> {
    if mode == TlsMode::Disable {
        return Ok(None);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let config = if mode == TlsMode::VerifyFull {
        builder.with_root_certificates(roots(root)?).with_no_client_auth()
    } else {
        let anyone = Arc::new(Anyone(provider));
        builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
    };
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let broken = |e| format!("ca_file {file}: {e}");
            for certificate in CertificateDer::pem_file_iter(file).map_err(broken)? {
                let certificate = certificate.map_err(broken)?;
                roots.add(certificate).map_err(|e| format!("ca_file {file}: {e}"))?;
            }
        }
        // What cannot be read is not trusted.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("there is no root certificate to trust: name a file by ca_file".to_owned());
    }
    Ok(roots)
}

/// Takes every certificate, as `sslmode=prefer` and `require` ask for: against listeners, not
/// against impostors. That the server has the certificate's key is checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
