// Package paging keeps the unwinding rows that walks use in an array that is too
// small for the rows of all files: a cache of parts of tables, which evicts the
// least recently used part.
//
//	table                    an executable's rows, sorted; packed in ordinary memory (table.go)
//	  -> chunk               255 consecutive rows of it
//	       -> cell           a chunk's entry in the directory: where its rows begin in
//	                         the file, and which slot has them, if one does
//	       -> slot           256 words of the array: a header and a chunk's rows
//
// Walks (bpf/include/unwind.h) read directory and slots without locks, and write
// three things: a slot's time of last use, a mark in a cell that its chunk was asked
// for, and a request that user space answers with Demand. What they read is safe by
// this order of stores:
//
//	load    the slot's generation goes up, the rows are written, then one store to
//	        the cell publishes slot and generation
//	evict   one store to the cell withdraws them; the slot is used again after a
//	        grace period
//	walk    reads the cell, the row, and then the slot's generation. One that is
//	        not the cell's says that the rows were replaced meanwhile: the walk
//	        ends as evicted, whatever it read
//
// The layouts, in 32-bit halves:
//
//	cell    low   file offset of the chunk's first row
//	        high  generation << 16 | slot; without a slot, flags that say why
//	header  low   tick of the last use, written by walks
//	        high  generation
package paging
