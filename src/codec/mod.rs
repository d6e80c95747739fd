//! Bytes that last: model values to and from their stored and wire forms.
