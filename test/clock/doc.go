// Package clock steps the wall clock of one process, as the machine's clock would be stepped for it. Each node of the rig has the kernel's
// clock, and a time namespace does not shift the wall clock. But a Go program reads its clock in the vDSO, which the kernel maps into each
// process. The package replaces that function in the memory of the process. The program itself is unchanged.
//
// It never changes the monotonic clock, and never the clock of the machine. A process that is started later has the machine's clock.
package clock
