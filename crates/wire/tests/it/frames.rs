//! Frames in a stream: pieces, floods, lies about lengths, bodies that fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // In helpers of tests, too.

use crate::common;
use crate::common::{Message, grain, samples};
use bytes::{BufMut, BytesMut};
use emmer_wire::*;

const MAX: u32 = 1 << 20;

/// All samples one after the other, and how many there are.
fn stream() -> (BytesMut, Vec<Message>) {
    let mut bytes = BytesMut::new();
    let messages: Vec<_> = samples().into_iter().map(|(_, message)| message).collect();
    for message in &messages {
        message.encode(&mut bytes);
    }
    (bytes, messages)
}

fn drain(input: &mut BytesMut, into: &mut Vec<Message>) {
    while let Some(frame) = decode_frame(input, MAX).unwrap() {
        into.push(Message::decode(frame).unwrap());
    }
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let (bytes, expected) = stream();
    for cut in 0..=bytes.len() {
        let mut found = Vec::new();
        let mut input = BytesMut::from(&bytes[..cut]);
        drain(&mut input, &mut found);
        input.extend_from_slice(&bytes[cut..]);
        drain(&mut input, &mut found);
        assert!(input.is_empty() && found == expected, "cut at {cut}");
    }
}

#[test]
fn a_stream_may_come_in_pieces_of_any_size() {
    let (bytes, expected) = stream();
    for size in 1..=bytes.len() {
        let (mut input, mut found) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(size) {
            input.extend_from_slice(piece);
            drain(&mut input, &mut found);
        }
        assert!(input.is_empty() && found == expected, "pieces of {size}");
    }
}

#[test]
fn a_partial_frame_leaves_room_to_receive_more() {
    let (bytes, _) = stream();
    let mut input = BytesMut::new();
    for byte in &bytes[..] {
        while decode_frame(&mut input, MAX).unwrap().is_some() {}
        assert!(input.capacity() > input.len());
        input.put_u8(*byte);
    }
}

#[test]
fn lies_about_lengths_close_the_connection_and_allocate_nothing() {
    for (prefix, error) in [
        (0u32, FrameError::Empty),
        (MAX + 1, FrameError::TooLong { bytes: MAX + 1, max: MAX }),
        (2 << 30, FrameError::TooLong { bytes: 2 << 30, max: MAX }),
        (u32::MAX, FrameError::TooLong { bytes: u32::MAX, max: MAX }),
    ] {
        let mut input = BytesMut::from(&prefix.to_le_bytes()[..]);
        let before = input.capacity();
        assert_eq!(decode_frame(&mut input, MAX), Err(error));
        assert_eq!(input.capacity(), before);
    }
}

#[test]
fn an_announced_length_alone_is_given_little_memory() {
    // The largest legal lie: nothing has come of the 4 GiB that were announced.
    let mut input = BytesMut::from(&u32::MAX.to_le_bytes()[..]);
    assert_eq!(decode_frame(&mut input, u32::MAX), Ok(None));
    input.put_u8(FrameKind::Request as u8);
    assert_eq!(decode_frame(&mut input, u32::MAX), Ok(None));
    assert!(input.capacity() < 100 << 10, "{}", input.capacity());
    // Memory follows what really arrives.
    input.resize(1 << 20, 0);
    assert_eq!(decode_frame(&mut input, u32::MAX), Ok(None));
    assert!(input.capacity() < 5 << 20, "{}", input.capacity());
}

#[test]
fn a_large_frame_arrives_whole() {
    let header = sample_header();
    let body = vec![7u8; 5 << 20];
    let mut bytes = BytesMut::new();
    let appended = encode_request(&mut bytes, &header, |out| {
        out.put_slice(&body);
        Ok::<(), ()>(())
    });
    assert_eq!(appended, Ok(bytes.len()));
    let mut input = BytesMut::new();
    let mut pieces = bytes.chunks(60_000).peekable();
    let frame = loop {
        match decode_frame(&mut input, 6 << 20).unwrap() {
            Some(frame) => break frame,
            None => input.extend_from_slice(pieces.next().expect("whole after the last piece")),
        }
    };
    assert!(pieces.peek().is_none() && input.is_empty());
    let (found, found_body) = decode_request(frame.payload).unwrap();
    assert!(found == header && found_body == body);
}

#[test]
fn foreign_protocols_are_told_apart_at_once() {
    let http = b"GET / HTTP/1.1\r\n\r\n";
    let tls = [0x16, 0x03, 0x01, 0x00, 0xf4, 0x01, 0x00, 0x00, 0xf0];
    let ssh = b"SSH-2.0-x\r\n";
    for foreign in [&http[..], &tls, ssh] {
        let mut input = BytesMut::from(foreign);
        let error = decode_frame(&mut input, HANDSHAKE_BYTES_MAX).unwrap_err();
        assert!(matches!(error, FrameError::TooLong { max: HANDSHAKE_BYTES_MAX, .. }), "{error}");
    }
    let error = Hello::decode(b"RMMEgarbage").unwrap_err();
    assert_eq!(error, HeaderError::NotEmmer(*b"RMME"));
    assert_eq!(error.refuse_code(), RefuseCode::BadHello);
    // An unknown kind is seen as soon as its byte is there.
    let mut input = BytesMut::from(&[0, 1, 0, 0, 10][..]);
    assert_eq!(decode_frame(&mut input, MAX), Err(FrameError::UnknownKind(10)));
}

#[test]
fn a_handshake_fits_its_own_limit() {
    let mut longest = BytesMut::new();
    let refuse = Refuse {
        code: RefuseCode::Other(200),
        silo: Some(common::silo("[::1]:1:1")),
        reason: "ä".repeat(9000),
    };
    let appended = encode_refuse(&mut longest, &refuse);
    assert!(frame_fits(appended, HANDSHAKE_BYTES_MAX));
    let Ok(Message::Refuse(found)) = common::decode_whole(&longest) else { panic!("a refusal") };
    assert_eq!(
        (found.code, found.reason),
        (RefuseCode::Other(200), "ä".repeat(TEXT_BYTES_MAX / 2))
    );
}

#[test]
fn a_failing_or_panicking_body_leaves_the_buffer_as_it_was() {
    let header = sample_header();
    let mut out = BytesMut::from(&b"earlier frames"[..]);
    let failed = encode_request(&mut out, &header, |out| {
        out.put_slice(&[1; 100_000]);
        Err("no")
    });
    assert_eq!((failed, &out[..]), (Err("no"), &b"earlier frames"[..]));
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        encode_request(&mut out, &header, |out| -> Result<(), ()> {
            out.put_slice(&[1; 1000]);
            panic!("a user's Serialize")
        })
    }));
    assert!(unwound.is_err());
    assert_eq!(&out[..], b"earlier frames");
}

#[test]
fn frame_fits_is_exact() {
    let bytes = samples()[0].1.bytes();
    let length = (bytes.len() - FRAME_PREFIX_BYTES) as u32;
    for (max, fits) in [(length - 1, false), (length, true), (length + 1, true)] {
        assert_eq!(frame_fits(bytes.len(), max), fits);
        assert_eq!(decode_frame(&mut bytes.clone(), max).is_ok(), fits);
    }
    assert!(!frame_fits(u32::MAX as usize + FRAME_PREFIX_BYTES + 1, u32::MAX));
}

fn sample_header() -> RequestHeader {
    RequestHeader {
        correlation: 1,
        target: grain(1, "key"),
        method: 2,
        flags: RequestFlags::NONE,
        deadline_ms: 0,
        forwards: 0,
        expect_view: 0,
        chain: CallChain::EMPTY,
        trace: None,
    }
}
