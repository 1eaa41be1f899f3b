//go:build !amd64

package clock

// toKernel is not known for this architecture.
var toKernel []byte

const leave = 0
