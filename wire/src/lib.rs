//! The vocabulary of uview.
