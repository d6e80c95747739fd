//! Reads the dimensions of an image from the beginning of its file. Supports PNG, JPEG, GIF and WebP.

use crate::model::media::Pixels;

/// The dimensions of an image. Returns `None` if the format is not supported or the header is damaged.
pub fn pixels(bytes: &[u8]) -> Option<Pixels> {
    png(bytes).or_else(|| gif(bytes)).or_else(|| webp(bytes)).or_else(|| jpeg(bytes))
}

fn png(bytes: &[u8]) -> Option<Pixels> {
    let header = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    if header.get(4..8)? != b"IHDR" {
        return None;
    }
    Pixels::new(big_endian(header.get(8..12)?), big_endian(header.get(12..16)?))
}

fn gif(bytes: &[u8]) -> Option<Pixels> {
    let screen = bytes.strip_prefix(b"GIF87a").or_else(|| bytes.strip_prefix(b"GIF89a"))?;
    Pixels::new(little_endian(screen.get(0..2)?), little_endian(screen.get(2..4)?))
}

/// WebP has three forms: lossy, lossless, and extended.
fn webp(bytes: &[u8]) -> Option<Pixels> {
    let file = bytes.strip_prefix(b"RIFF")?.get(4..)?.strip_prefix(b"WEBP")?;
    let form = file.get(0..4)?;
    let chunk = file.get(8..)?;
    match form {
        b"VP8 " if chunk.get(3..6)? == b"\x9d\x01\x2a" => {
            // The two upper bits are the scaling factor for display.
            let side = |at: usize| Some(little_endian(chunk.get(at..at + 2)?) & 0x3fff);
            Pixels::new(side(6)?, side(8)?)
        }
        b"VP8L" if chunk.first() == Some(&0x2f) => {
            let bits = little_endian(chunk.get(1..5)?);
            Pixels::new((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1)
        }
        b"VP8X" => Pixels::new(little_endian(chunk.get(4..7)?) + 1, little_endian(chunk.get(7..10)?) + 1),
        _ => None,
    }
}

/// Walks the segments up to the first start of frame.
fn jpeg(bytes: &[u8]) -> Option<Pixels> {
    let mut rest = bytes.strip_prefix(b"\xff\xd8")?;
    loop {
        let [0xff, marker, after @ ..] = rest else {
            return None;
        };
        match *marker {
            // Fill bytes, and markers without a segment.
            0xff => rest = rest.get(1..)?,
            0x01 | 0xd0..=0xd7 => rest = after,
            0xc0..=0xcf if !matches!(*marker, 0xc4 | 0xc8 | 0xcc) => {
                let side = |at: usize| Some(big_endian(after.get(at..at + 2)?));
                return Pixels::new(side(5)?, side(3)?);
            }
            _ => rest = after.get(big_endian(after.get(0..2)?).max(2) as usize..)?,
        }
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(), &width.to_be_bytes(), &height.to_be_bytes()].concat()
    }

    #[test]
    fn image_size_is_read_from_every_format() {
        let exif = [b"\xff\xe1\x01\x02".as_slice(), &[0xff; 256]].concat();
        let frame = b"\xff\xc2\x00\x11\x08\x04\x38\x07\x80";
        let table: [(&str, Vec<u8>, (u32, u32)); 7] = [
            ("png", png_of(1920, 1080), (1920, 1080)),
            ("gif", b"GIF89a\x40\x01\xf0\x00".to_vec(), (320, 240)),
            ("jpeg", [b"\xff\xd8".as_slice(), &exif, b"\xff\xff", &frame[1..]].concat(), (1920, 1080)),
            ("bare jpeg", [b"\xff\xd8".as_slice(), frame].concat(), (1920, 1080)),
            ("lossy webp", b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x47\x38\x04".to_vec(), (1920, 1080)),
            ("lossless webp", b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\x87\x0d\x01".to_vec(), (1920, 1079)),
            ("webp", b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\x07\0\x37\x04\0".to_vec(), (1920, 1080)),
        ];
        for (name, bytes, (width, height)) in table {
            assert_eq!(pixels(&bytes), Pixels::new(width, height), "{name}");
            // If the file is truncated, the result is `None` or the same.
            for end in 0..bytes.len() {
                assert!([None, Pixels::new(width, height)].contains(&pixels(&bytes[..end])), "{name} cut at {end}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_an_image_has_no_size() {
        for bytes in [b"".as_slice(), b"%PDF-1.7", b"\xff\xd8\xff", &png_of(0, 7), b"\xff\xd8\xff\xe0\0\0"] {
            assert_eq!(pixels(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn reading_an_image_size_never_panics_on_arbitrary_bytes(start in 0_usize..6, bytes: Vec<u8>) {
            let starts: [&[u8]; 6] = [b"", b"\xff\xd8", b"GIF87a", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8 "];
            let _ = pixels(&[starts[start], &bytes].concat());
        }
    }
}
