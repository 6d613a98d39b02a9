// Package cli is the holdfast command as a function, so that a program of its
// own can be built with other stores: import the drivers and call [Main].
//
// Each command has a file. In it parsing, doing and printing are apart: parse
// functions touch no store, and what prints decides nothing.
package cli
