package transport

// wakeAt does nothing: Windows always wakes a process at the first byte, which only costs more CPU.
func (c *gatheringConn) wakeAt(int) {}
