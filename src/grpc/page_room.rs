//! How large the pages of lists may be, in bytes.

/// Bytes that a page of a list may have; a page with one item may have more.
pub(super) const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Bytes that are read from the database at once for a page, as they are stored; one item may have
/// more.
pub(super) const READ_BYTES: i64 = 8 * 1024 * 1024;

/// The room of a page, in bytes. The first item has room whatever its size.
#[derive(Debug, Default)]
pub struct Room {
    taken: usize,
}

impl Room {
    /// Whether there is room for an item, which takes it then.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.taken == 0 || self.taken + bytes <= PAGE_BYTES;
        if fits {
            self.taken += bytes;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_items_up_to_its_room_and_the_first_in_any_case() {
        let taken = |sizes: &[usize]| {
            let mut room = Room::default();
            sizes.iter().take_while(|size| room.takes(**size)).count()
        };
        assert_eq!(taken(&[PAGE_BYTES + 1, 1]), 1);
        assert_eq!(taken(&[PAGE_BYTES, 1]), 1);
        assert_eq!(taken(&[PAGE_BYTES - 1, 1, 1]), 2);
    }
}
