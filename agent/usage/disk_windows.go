package usage

// Disk needs a Unix system.
func (m *Meter) Disk(string) (Amount, error) { return Amount{}, errLinux }

// Volume needs a Unix system.
func (m *Meter) Volume(string) (Amount, error) { return Amount{}, errLinux }
