"""From graphs of products of two to programs: layouts, arrays, tiles, rows, descriptors."""
