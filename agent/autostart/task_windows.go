package autostart

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf16"

	"golang.org/x/sys/windows"
)

const (
	programName = "coder.exe"
	taskName    = "codermesh-agent"
)

// protect leaves a file or folder to this account and the system. What is made in the folder inherits that.
func protect(path string) error {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return err
	}
	system, err := windows.CreateWellKnownSid(windows.WinLocalSystemSid)
	if err != nil {
		return err
	}
	var entries []windows.EXPLICIT_ACCESS
	for _, sid := range []*windows.SID{user.User.Sid, system} {
		entries = append(entries, windows.EXPLICIT_ACCESS{
			AccessPermissions: windows.GENERIC_ALL, AccessMode: windows.SET_ACCESS,
			Inheritance: windows.SUB_CONTAINERS_AND_OBJECTS_INHERIT,
			Trustee: windows.TRUSTEE{
				TrusteeForm: windows.TRUSTEE_IS_SID, TrusteeValue: windows.TrusteeValueFromSID(sid),
			},
		})
	}
	acl, err := windows.ACLFromEntries(entries, nil)
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
}

// setAside renames a program that may be running: Windows does not let it be replaced, but renamed.
func setAside(path string) {
	if filepath.Ext(path) == ".exe" {
		old := strings.TrimSuffix(path, ".exe") + ".old.exe"
		_ = os.Remove(old)       // of the install before
		_ = os.Rename(path, old) // there may be none
	}
}

// remove removes the folder of the service, which has files only: os.RemoveAll fails in Wine 8. Windows does not let a
// program be removed while it runs, as the agent does until its stop scripts have ended, so discard takes it away.
func remove(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if os.Remove(path) == nil {
			continue
		}
		if err := discard(path); err != nil {
			return err
		}
	}
	if err := os.Remove(folder); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// discard moves a program that runs to the folder for temporary files. Windows removes it when the machine restarts, if
// this account may ask for that.
func discard(path string) error {
	f, err := os.CreateTemp("", "codermesh-agent-*.exe")
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), os.Rename(path, f.Name())); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if name, err := windows.UTF16PtrFromString(f.Name()); err == nil {
		_ = windows.MoveFileEx(name, nil, windows.MOVEFILE_DELAY_UNTIL_REBOOT) // needs an administrator
	}
	return nil
}

// available returns nil: every Windows has a task scheduler.
func available(context.Context, Options) error { return nil }

func register(ctx context.Context, o Options) (note string, err error) {
	elevated := windows.GetCurrentProcessToken().IsElevated()
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", err
	}
	file := filepath.Join(o.Folder, "task.xml")
	if err := os.WriteFile(file, task(o, user.User.Sid.String(), elevated), 0o600); err != nil {
		return "", err
	}
	if err := o.command(ctx, "schtasks", "/Create", "/F", "/TN", taskName, "/XML", file); err != nil {
		return "", err
	}
	if err := o.command(ctx, "schtasks", "/Run", "/TN", taskName); err != nil {
		return "", err
	}
	if !elevated {
		return fmt.Sprintf("The agent starts when %s logs on. To start it with the machine, "+
			"run this command as an administrator.", o.Account), nil
	}
	return "", nil
}

func unregister(ctx context.Context, o Options) error {
	_ = o.command(ctx, "schtasks", "/End", "/TN", taskName) // fails if it does not run
	return o.command(ctx, "schtasks", "/Delete", "/F", "/TN", taskName)
}

// taskText describes a task, as the schema of Windows' Task Scheduler 1.2 orders its elements. Its arguments are the
// trigger, the account's identifier, how the account logs on, the program and its arguments.
const taskText = `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>Agent of a workspace</Description></RegistrationInfo>
  <Triggers>%s</Triggers>
  <Principals>
    <Principal id="Author"><UserId>%s</UserId><LogonType>%s</LogonType><RunLevel>LeastPrivilege</RunLevel></Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
  </Settings>
  <Actions Context="Author"><Exec><Command>%s</Command><Arguments>%s</Arguments></Exec></Actions>
</Task>
`

var escapeXML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace

// task returns the file that describes the task of an account. With an administrator's rights it starts with the
// machine, and has no window; otherwise when the account logs on.
func task(o Options, sid string, machine bool) []byte {
	trigger, logon := "<BootTrigger/>", "S4U"
	if !machine {
		trigger, logon = "<LogonTrigger><UserId>"+escapeXML(sid)+"</UserId></LogonTrigger>", "InteractiveToken"
	}
	var arguments []string
	for _, arg := range o.arguments() {
		arguments = append(arguments, syscall.EscapeArg(arg))
	}
	text := fmt.Sprintf(taskText, trigger, escapeXML(sid), logon, escapeXML(o.program()),
		escapeXML(strings.Join(arguments, " ")))
	out := []byte{0xff, 0xfe} // schtasks expects UTF-16
	for _, unit := range utf16.Encode([]rune(text)) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return out
}
