package clock

// toKernel calls clock_gettime of the kernel. If that succeeds for CLOCK_REALTIME, it adds the 32 bits that follow to the seconds. The
// arguments are in edi and rsi, and the call keeps both.
var toKernel = []byte{
	0xf3, 0x0f, 0x1e, 0xfa, // endbr64
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x0b, // jnz leave
	0x85, 0xff, // test edi, edi
	0x75, 0x07, // jnz leave
	0x48, 0x81, 0x06, // add qword ptr [rsi], the 32 bits that follow
}

// leave is the instruction ret.
const leave = 0xc3
