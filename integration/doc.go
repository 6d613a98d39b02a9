// Package integration proves the laws on real servers: with faults, over many
// processes, in recorded histories. It is never released.
package integration
