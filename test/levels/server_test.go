package levels

func (e *examiner) askServer(int) {}
