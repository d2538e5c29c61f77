//! The names in a client's certificate.

use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The names in a certificate in DER: the common name of its subject, and then its alternative names that are DNS names,
/// addresses of mail or URIs, in their order. None, if it cannot be read.
#[must_use]
pub fn names(certificate: &[u8]) -> Vec<String> {
    let Ok(certificate) = CertificateInner::<Raw>::from_der(certificate) else { return Vec::new() };
    let certificate = certificate.tbs_certificate();
    let common = certificate.subject().common_name().ok().flatten();
    let mut names: Vec<String> = common.map(|name| name.value().into_owned()).into_iter().collect();
    if let Ok(Some((_, SubjectAltName(others)))) = certificate.get_extension::<SubjectAltName>() {
        names.extend(others.iter().filter_map(|name| match name {
            GeneralName::DnsName(name)
            | GeneralName::Rfc822Name(name)
            | GeneralName::UniformResourceIdentifier(name) => Some(name.as_str().to_owned()),
            _ => None,
        }));
    }
    names
}
