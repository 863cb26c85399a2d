//! The service that a request names: in the query of a URL, or in the frame of a gRPC call. Pure.

use prost::Message as _;

use crate::strategy::Parameters;

/// Maximum bytes of a service's name.
pub const MAX_NAME_BYTES: usize = 512;
/// Length of a gRPC frame's header: a flag and a length.
pub(crate) const FRAME: usize = 5;

/// Checks the length of a service's name.
fn named(service: String) -> Result<String, &'static str> {
    match service.len() {
        0 => Err("'service' parameter must be provided once"),
        1..=MAX_NAME_BYTES => Ok(service),
        _ => Err("the service's name is longer than 512 bytes"),
    }
}

/// The parameter `service` of a URL's query, decoded. 1 to 512 bytes.
///
/// # Errors
///
/// What is wrong: it is not there once, not valid, or too long.
pub fn service_in_query(query: &str) -> Result<String, &'static str> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix("service="));
    let value = values.next().filter(|_| values.next().is_none());
    named(value.and_then(decoded).unwrap_or_default())
}

/// A value of a query without its escapes, `+` and `%20`; `None` if one is not valid.
fn decoded(value: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                (digit(rest.next())? * 16 + digit(rest.next())?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The service in the only frame of a gRPC call, whose message is uncompressed. 1 to 512 bytes.
///
/// # Errors
///
/// What is wrong: the frame, the message, or the name's length.
pub fn service_in_frame(body: &[u8]) -> Result<String, &'static str> {
    let parameters = unframed(body).and_then(|message| Parameters::decode(message).ok());
    named(parameters.ok_or("not an uncompressed SamplingStrategyParameters message")?.service_name)
}

/// The message of the only frame in `body`, uncompressed.
fn unframed(body: &[u8]) -> Option<&[u8]> {
    let (&[packed, a, b, c, d], message) = body.split_first_chunk::<FRAME>()?;
    (packed == 0 && message.len() == u32::from_be_bytes([a, b, c, d]) as usize).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_service_with_its_escapes() {
        for (query, service) in [("service=a", "a"), ("x=1&service=a%2Fb+c", "a/b c"), ("service=%c3%a4", "\u{e4}")] {
            assert_eq!(service_in_query(query).as_deref(), Ok(service));
        }
        for query in ["", "service=", "service=a&service=b", "service=%", "service=%4", "service=%zz", "service=%ff"] {
            assert!(service_in_query(query).is_err_and(|why| why.contains("provided once")), "{query}");
        }
        let long = format!("service={}", "a".repeat(MAX_NAME_BYTES + 1));
        assert!(service_in_query(&long).is_err_and(|why| why.contains("longer")));
    }

    #[test]
    fn a_frame_is_one_uncompressed_message() {
        let message = Parameters { service_name: "cart".to_owned() }.encode_to_vec();
        let frame = |flag: u8, length: u8| [&[flag, 0, 0, 0, length], message.as_slice()].concat();
        let length = message.len() as u8;

        assert_eq!(service_in_frame(&frame(0, length)).as_deref(), Ok("cart"));
        for wrong in
            [frame(1, length), frame(0, length - 1), frame(0, length + 1), vec![0, 0, 0], b"\0\0\0\0\x01\xff".to_vec()]
        {
            assert!(service_in_frame(&wrong).is_err(), "{wrong:?}");
        }
        assert!(service_in_frame(&[0; 5]).is_err(), "no name");
    }
}
