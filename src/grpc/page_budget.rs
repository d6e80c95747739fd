//! Limits the size of list pages in bytes.

/// Maximum size of a page. A page with a single item may be larger.
pub(super) const PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Maximum number of stored bytes per database read for a page. A read of a single item may be larger.
pub(super) const READ_BYTES: i64 = 8 * 1024 * 1024;

/// The space left in a page. The first item always fits.
#[derive(Debug, Default)]
pub struct PageBudget {
    taken: usize,
}

impl PageBudget {
    /// Reserves space for an item. Returns false, and reserves nothing, if it does not fit.
    pub fn try_reserve(&mut self, bytes: usize) -> bool {
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
            let mut room = PageBudget::default();
            sizes.iter().take_while(|size| room.try_reserve(**size)).count()
        };
        assert_eq!(taken(&[PAGE_BYTES + 1, 1]), 1);
        assert_eq!(taken(&[PAGE_BYTES, 1]), 1);
        assert_eq!(taken(&[PAGE_BYTES - 1, 1, 1]), 2);
    }
}
