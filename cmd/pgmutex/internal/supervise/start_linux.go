package supervise

import "syscall"

// ownExecutable names the running program, also after its file was replaced.
func ownExecutable() (string, error) { return "/proc/self/exe", nil }

// tie makes the command die with the thread that starts it.
func tie(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
