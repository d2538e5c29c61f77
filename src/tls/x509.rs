//! The parts of certificates and revocation lists that the server reads: times, and the names of a client. rustls
//! checks the rest.

use std::time::Duration;

use der::asn1::{
    AnyRef, BmpString, GeneralizedTime, Ia5StringRef, PrintableStringRef, TeletexStringRef, UtcTime,
    Utf8StringRef,
};
use der::{Decode, Error, ErrorKind, Reader, SliceReader, Tag, Tagged};

/// The object identifier of a common name (RFC 5280, appendix A.1), encoded.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// The object identifier of a subject's alternative names (RFC 5280, section 4.2.1.6), encoded.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];

/// The start and the end of the validity of a certificate in DER, since 1970.
///
/// # Errors
/// If the bytes are not a certificate.
pub(super) fn validity(certificate: &[u8]) -> Result<(Duration, Duration), Error> {
    match elements(Certificate::parse(certificate)?.validity)?[..] {
        [begin, end] => Ok((time(begin)?, time(end)?)),
        _ => Err(ErrorKind::Failed.into()),
    }
}

/// When the successor of a revocation list in DER is due, since 1970, if the list says so.
///
/// # Errors
/// If the bytes are not a revocation list.
pub(super) fn next_update(list: &[u8]) -> Result<Option<Duration>, Error> {
    // RFC 5280, section 5.1: the first time in a list is its own, the second is the time of the next list.
    let mut times = signed(list)?;
    times.retain(|field| matches!(field.tag(), Tag::UtcTime | Tag::GeneralizedTime));
    times.get(1).copied().map(time).transpose()
}

/// The names and the serial number in the certificate of a client.
#[derive(Debug, Default)]
pub struct ClientCertificate {
    /// The common name of its subject, and then its alternative names that are DNS names, mail addresses or URIs, in
    /// order. Empty if the certificate cannot be read.
    pub names: Vec<String>,
    /// Serial number of the certificate in hexadecimal digits, as `openssl x509 -serial` prints it.
    pub serial: String,
}

impl ClientCertificate {
    /// The names and the serial number of a certificate in DER; empty if it cannot be read.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let Ok(certificate) = Certificate::parse(certificate) else { return Self::default() };
        let mut names: Vec<String> = certificate.common_name().ok().flatten().into_iter().collect();
        names.extend(certificate.alternative_names().unwrap_or_default());
        // A leading zero keeps the number from being negative.
        let digits = certificate.serial.value();
        let digits = if digits.len() > 1 { digits.strip_prefix(&[0]).unwrap_or(digits) } else { digits };
        Self { names, serial: digits.iter().map(|byte| format!("{byte:02X}")).collect() }
    }
}

/// The fields of a certificate (RFC 5280, section 4.1) that the server reads.
struct Certificate<'a> {
    serial: AnyRef<'a>,
    validity: AnyRef<'a>,
    subject: AnyRef<'a>,
    /// Unique identifiers, which nobody uses, and the extensions.
    optional: Vec<AnyRef<'a>>,
}

impl<'a> Certificate<'a> {
    fn parse(certificate: &'a [u8]) -> Result<Self, Error> {
        let fields = signed(certificate)?;
        // A certificate without a version has version 1.
        let from = usize::from(fields.first().and_then(|first| context(*first)) == Some(0));
        match fields[from..] {
            [serial, _algorithm, _issuer, validity, subject, _key, ref optional @ ..] => {
                Ok(Self { serial, validity, subject, optional: optional.to_vec() })
            }
            _ => Err(ErrorKind::Failed.into()),
        }
    }

    /// The first common name.
    fn common_name(&self) -> Result<Option<String>, Error> {
        for set in elements(self.subject)? {
            for attribute in elements(set)? {
                if let [kind, value] = elements(attribute)?[..]
                    && kind.value() == COMMON_NAME
                {
                    return text(value).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn alternative_names(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let Some(wrapped) = self.optional.iter().find(|field| context(**field) == Some(3)) else {
            return Ok(names);
        };
        let mut has_been_found = false;
        for extension in elements(AnyRef::from_der(wrapped.value())?)? {
            // Between the kind and the value, an extension may be marked as critical.
            let fields = elements(extension)?;
            let (Some(kind), Some(value)) = (fields.first(), fields.last()) else { continue };
            if kind.value() != ALTERNATIVE_NAMES {
                continue;
            }
            if std::mem::replace(&mut has_been_found, true) {
                return Err(ErrorKind::Failed.into());
            }
            for name in elements(AnyRef::from_der(value.value())?)? {
                // A mail address, a DNS name, a URI.
                if matches!(context(name), Some(1 | 2 | 6)) {
                    names.push(Ia5StringRef::new(name.value())?.as_str().to_owned());
                }
            }
        }
        Ok(names)
    }
}

/// The fields of the signed part, which comes before the signature.
fn signed(document: &[u8]) -> Result<Vec<AnyRef<'_>>, Error> {
    match elements(AnyRef::from_der(document)?)?[..] {
        [fields, _algorithm, _signature] => elements(fields),
        _ => Err(ErrorKind::Failed.into()),
    }
}

/// The elements of a sequence or a set.
fn elements(outer: AnyRef<'_>) -> Result<Vec<AnyRef<'_>>, Error> {
    let mut reader = SliceReader::new(outer.value())?;
    let mut elements = Vec::new();
    while !reader.is_finished() {
        elements.push(AnyRef::decode(&mut reader)?);
    }
    Ok(elements)
}

/// The number of an optional field, or of one of several alternatives.
fn context(element: AnyRef<'_>) -> Option<u32> {
    let tag = element.tag();
    tag.is_context_specific().then(|| tag.number().value())
}

fn time(element: AnyRef<'_>) -> Result<Duration, Error> {
    if element.tag() == Tag::UtcTime {
        return Ok(element.decode_as::<UtcTime>()?.to_unix_duration());
    }
    Ok(element.decode_as::<GeneralizedTime>()?.to_unix_duration())
}

fn text(element: AnyRef<'_>) -> Result<String, Error> {
    Ok(match element.tag() {
        Tag::PrintableString => element.decode_as::<PrintableStringRef<'_>>()?.as_str().to_owned(),
        Tag::TeletexString => element.decode_as::<TeletexStringRef<'_>>()?.as_str().to_owned(),
        Tag::BmpString => element.decode_as::<BmpString>()?.to_string(),
        _ => element.decode_as::<Utf8StringRef<'_>>()?.as_str().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn names(certificate: &[u8]) -> Vec<String> {
        ClientCertificate::of(certificate).names
    }

    #[test]
    fn a_serial_number_is_in_hexadecimal_digits() {
        for (serial, expected) in
            [(vec![0], "00"), (vec![7], "07"), (vec![3, 232], "03E8"), (vec![0, 0xff, 1], "FF01")]
        {
            let mut params = CertificateParams::default();
            params.serial_number = Some(serial.into());
            assert_eq!(ClientCertificate::of(&issue(&params)).serial, expected);
        }
    }

    fn issue(params: &CertificateParams) -> Vec<u8> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn with_common_name(name: impl Into<DnValue>) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new(); // the default has a common name in front
        params.distinguished_name.push(DnType::OrganizationName, "not this one");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    #[test]
    fn the_names_are_the_common_name_and_the_alternative_ones_in_their_order() {
        let mut params = with_common_name("worker");
        let name = |text| Ia5String::try_from(text).unwrap();
        params.subject_alt_names = vec![
            SanType::URI(name("spiffe://here/worker")),
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::DnsName(name("worker.example.org")),
            SanType::Rfc822Name(name("worker@example.org")),
        ];
        let expected = ["worker", "spiffe://here/worker", "worker.example.org", "worker@example.org"];
        assert_eq!(names(&issue(&params)), expected);
        params.distinguished_name = DistinguishedName::new();
        assert_eq!(names(&issue(&params)), expected[1..]);
    }

    #[test]
    fn a_common_name_may_be_of_each_kind_of_text() {
        for name in [
            DnValue::Utf8String("arbeiter-ü".into()),
            DnValue::PrintableString(PrintableString::try_from("worker").unwrap()),
            DnValue::TeletexString(TeletexString::try_from("worker").unwrap()),
            DnValue::BmpString(BmpString::try_from("worker").unwrap()),
        ] {
            let found = names(&issue(&with_common_name(name.clone())));
            assert_eq!(found, [if matches!(name, DnValue::Utf8String(_)) { "arbeiter-ü" } else { "worker" }]);
        }
    }

    #[test]
    fn the_times_of_both_kinds_are_read() {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2051, 1, 1); // in the kind that has four digits for a year
        let (begin, end) = validity(&issue(&params)).unwrap();
        assert_eq!((begin.as_secs(), end.as_secs()), (946_598_400, 2_556_144_000));
    }

    #[test]
    fn every_name_read_from_a_damaged_certificate_is_in_its_bytes() {
        let mut params = with_common_name("worker");
        params.subject_alt_names = vec![SanType::DnsName(Ia5String::try_from("worker.example.org").unwrap())];
        let certificate = issue(&params);
        for bit in 0..8 * certificate.len() {
            let mut changed = certificate.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            for name in names(&changed) {
                let bytes = name.as_bytes();
                assert!(changed.windows(bytes.len().max(1)).any(|part| part == bytes), "bit {bit}: {name}");
            }
            let _ = (validity(&changed), next_update(&changed));
        }
    }

    #[test]
    fn a_truncated_certificate_is_refused() {
        let certificate = issue(&with_common_name("worker"));
        for length in 0..certificate.len() {
            assert!(validity(&certificate[..length]).is_err());
            assert!(next_update(&certificate[..length]).is_err());
            assert!(names(&certificate[..length]).is_empty());
        }
    }
}
