//! Limits the rate of HTTP/2 frames that carry neither a request nor data, such as PING and SETTINGS, or
//! hardly any data, because each costs the server work and the sender nothing.

use std::time::Duration;

/// Length of the connection preface that every HTTP/2 client sends first (RFC 9113, section 3.4).
pub(super) const PREFACE: usize = 24;
/// Length of a frame header (RFC 9113, section 4.1).
const FRAME_HEADER_BYTES: usize = 9;
/// Types of the frames that carry content, which is limited elsewhere.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// DATA frames with less payload than this, in bytes, count as empty. The prefix of a gRPC message alone
/// takes 5.
const SMALL: usize = 16;
/// How far a client may run ahead of its rate.
const MAX_BURST: Duration = Duration::from_secs(10);
/// A client may send one extra frame for this many bytes that it is sent: it acknowledges what it reads with
/// WINDOW_UPDATE, and may measure the connection with PING.
const BYTES_PER_FRAME: u32 = 64;

/// A client exceeds its rate of control frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client exceeded the rate of control frames")]
pub(super) struct Flood;

/// The frames that a client sends, parsed from their headers. Times are durations since an arbitrary fixed
/// moment.
#[derive(Debug)]
pub(super) struct ControlFrameLimiter {
    /// Time that one control frame uses up; the inverse of the rate.
    cost: Duration,
    /// The moment up to which the frames received so far use up the client's rate.
    paid_until: Duration,
    /// Bytes until the next frame header.
    skip: usize,
    head: [u8; FRAME_HEADER_BYTES],
    /// Bytes of the frame header received so far.
    header_len: usize,
}

impl ControlFrameLimiter {
    /// Creates the counter of a client that may send `per_second` control frames per second.
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            cost: Duration::from_secs(1) / per_second.max(1),
            paid_until: Duration::ZERO,
            skip: PREFACE,
            head: [0; FRAME_HEADER_BYTES],
            header_len: 0,
        }
    }

    /// Counts the frames in bytes received from the client. Returns an error if the client exceeds its rate
    /// by more than [`MAX_BURST`].
    pub(super) fn received(&mut self, bytes: &[u8], now: Duration) -> Result<(), Flood> {
        let control = self.control_frames(bytes);
        if control == 0 {
            return Ok(());
        }
        self.paid_until = self.paid_until.max(now) + self.cost * control;
        if self.paid_until > now + MAX_BURST {
            return Err(Flood);
        }
        Ok(())
    }

    /// Counts bytes sent to the client, which allow it more frames.
    pub(super) fn sent(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.paid_until = self.paid_until.saturating_sub(self.cost * bytes / BYTES_PER_FRAME);
    }

    fn control_frames(&mut self, mut bytes: &[u8]) -> u32 {
        let mut control = 0;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let read = (FRAME_HEADER_BYTES - self.header_len).min(bytes.len());
            self.head[self.header_len..self.header_len + read].copy_from_slice(&bytes[..read]);
            self.header_len += read;
            bytes = &bytes[read..];
            if self.header_len == FRAME_HEADER_BYTES {
                let [a, b, c, kind, ..] = self.head;
                self.header_len = 0;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                control += u32::from(match kind {
                    DATA => self.skip < SMALL,
                    HEADERS | CONTINUATION => false,
                    _ => true,
                });
            }
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.resize(FRAME_HEADER_BYTES + payload, PING);
        frame
    }

    fn begun(per_second: u32) -> ControlFrameLimiter {
        let mut frames = ControlFrameLimiter::new(per_second);
        frames.received(&[PING; PREFACE], Duration::ZERO).unwrap();
        frames
    }

    #[test]
    fn control_frames_are_found_wherever_the_bytes_are_cut() {
        let sent = [
            vec![PING; PREFACE],
            frame(4, 6),
            frame(HEADERS, 70_000),
            frame(PING, 8),
            frame(DATA, 5),
            frame(DATA, 16),
            frame(CONTINUATION, 3),
            frame(0xfe, 1),
        ]
        .concat();
        for size in [1, 2, 7, 9, 10, 100_000] {
            let mut frames = ControlFrameLimiter::new(1);
            let found: u32 = sent.chunks(size).map(|cut| frames.control_frames(cut)).sum();
            assert_eq!(found, 4, "in pieces of {size}");
        }
    }

    #[test]
    fn a_client_may_keep_its_rate_for_ever_and_be_ten_seconds_ahead_of_it() {
        let mut frames = begun(100);
        for second in 0..1_000 {
            let now = Duration::from_secs(second);
            let sent = frame(PING, 8).repeat(100);
            frames.received(&sent, now).unwrap();
        }
        let now = Duration::from_secs(2_000);
        assert_eq!(frames.received(&frame(PING, 8).repeat(1_000), now), Ok(()));
        assert_eq!(frames.received(&frame(PING, 8), now), Err(Flood));
    }

    #[test]
    fn what_is_sent_to_a_client_allows_it_more_and_answers_to_its_pings_too_little() {
        let mut reader = begun(100);
        for _ in 0..100 {
            reader.sent(64 * 1_000);
            let updates = frame(8, 4).repeat(1_000);
            reader.received(&updates, Duration::ZERO).unwrap();
        }
        let mut pinging = begun(100);
        let flood = (0..10_000).find(|_| {
            pinging.sent(FRAME_HEADER_BYTES + 8);
            pinging.received(&frame(PING, 8), Duration::ZERO).is_err()
        });
        assert!(flood.is_some_and(|frames| frames < 2_000), "{flood:?}");
    }
}
