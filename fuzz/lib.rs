//! Fuzz targets as plain functions over library code.
