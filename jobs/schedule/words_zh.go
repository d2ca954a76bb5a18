package schedule

import (
	"fmt"
	"strings"
)

type chinese struct{}

var (
	chineseDays  = [...]string{"周日", "周一", "周二", "周三", "周四", "周五", "周六"}
	chineseUnits = [...]string{"年", "个月", "周", "天", "小时", "分钟", "秒"}
)

func (l chinese) sentence(what string, b bounds) string {
	text := what + "（" + b.zone + "）"
	if b.start != "" {
		text += "，自 " + b.start + " 起"
	}
	if b.end != "" {
		text += "，至 " + b.end + " 止"
	}
	for _, note := range b.notes {
		text += "；" + note
	}
	return text
}

// cron goes from the year down to the second, as dates do in Chinese.
func (l chinese) cron(e *expression) string {
	var text []string
	if year := e.fields[6]; !year.open() {
		text = append(text, l.list(year, func(v int) string { return fmt.Sprint(v, " 年") }))
	}
	if month := e.fields[4]; !month.open() {
		text = append(text, l.list(month, func(v int) string { return fmt.Sprint(v, " 月") }))
	}
	return strings.Join(append(text, l.days(e), l.time(e)), "，")
}

func (l chinese) time(e *expression) string {
	if clocks := e.clocks(); clocks != nil {
		return l.and(clocks)
	}
	names := [...]struct{ each, number string }{{"秒", "秒"}, {"分钟", "分"}, {"小时", "时"}}
	low := 0
	if e.fields[0].isZero() {
		low = 1
	}
	var list []string
	for i := 2; i >= low; i-- {
		f, name := e.fields[i], names[i]
		switch f.shape() {
		case each:
			// "Every hour" goes without saying before "every minute".
			if i == low || e.fields[i-1].shape() == listed {
				list = append(list, "每"+name.each)
			}
		case stepping:
			list = append(list, fmt.Sprintf("每 %d %s", f.items[0].step, name.each))
		case listed:
			list = append(list, "第 "+l.list(f, func(v int) string { return fmt.Sprint(v, " ", name.number) }))
		}
	}
	return strings.Join(list, "的")
}

func (l chinese) days(e *expression) string {
	month, week := e.fields[3], e.fields[5]
	switch {
	case month.open() && week.open():
		return "每天"
	case week.open():
		return l.daysOfMonth(month)
	case month.open():
		return l.daysOfWeek(week)
	}
	return l.daysOfMonth(month) + "，或" + l.daysOfWeek(week) + "（符合其一即可）"
}

func (l chinese) daysOfMonth(f *field) string {
	var list []string
	for _, it := range f.items {
		switch it.kind {
		case lastDay:
			if it.from == 0 {
				list = append(list, "最后一天")
			} else {
				list = append(list, fmt.Sprintf("倒数第 %d 天", it.from+1))
			}
		case lastWorkday:
			list = append(list, "最后一个工作日")
		case nearWorkday:
			list = append(list, fmt.Sprintf("离 %d 日最近的工作日", it.from))
		default:
			list = append(list, l.run(f, it, func(v int) string { return fmt.Sprint(v, " 日") }))
		}
	}
	return spaced("每月", l.and(list))
}

func (l chinese) daysOfWeek(f *field) string {
	name := func(v int) string { return chineseDays[v] }
	var list []string
	for _, it := range f.items {
		switch it.kind {
		case lastOfWeek:
			list = append(list, "每月最后一个"+name(it.from))
		case nthOfWeek:
			list = append(list, fmt.Sprintf("每月第 %d 个%s", it.nth, name(it.from)))
		default:
			list = append(list, l.run(f, it, name))
		}
	}
	return l.and(list)
}

func (l chinese) list(f *field, name func(int) string) string {
	var list []string
	for _, it := range f.items {
		list = append(list, l.run(f, it, name))
	}
	return l.and(list)
}

func (l chinese) run(f *field, it item, name func(int) string) string {
	to := it.to(f.unit)
	switch {
	case it.count <= it.step:
		return name(it.from)
	case it.step > 1 && f.unit.names != nil:
		var names []string
		it.each(f.unit, func(v int) { names = append(names, name(v)) })
		return l.and(names)
	case it.step > 1:
		return spaced(name(it.from)+"至", name(it.lastOf(f.unit))) + fmt.Sprintf("每 %d 取一", it.step)
	}
	return spaced(name(it.from)+"至", name(to))
}

func (l chinese) every(months, days, seconds int64) string {
	var list []string
	parts(months, days, seconds, func(i int, n int64) {
		list = append(list, fmt.Sprintf("%d %s", n, chineseUnits[i]))
	})
	return "每 " + strings.Join(list, " ")
}

func (l chinese) counted(every string, times int64, anchor string, anchorIsFirst bool) string {
	if times > 0 {
		every += fmt.Sprintf("，共 %d 次", times)
	}
	if anchorIsFirst {
		return every + "，首次在 " + anchor
	}
	return every + "，从 " + anchor + " 起算"
}

func (l chinese) afterEnd(every string) string { return every + "，从上次运行结束起算" }

func (l chinese) once(at string) string { return "一次，在 " + at }

func (l chinese) policies(gap Gap, overlap Overlap) (notes []string) {
	switch gap {
	case GapBefore:
		notes = append(notes, "被时钟跳过的时刻在跳过之前触发")
	case GapSkip:
		notes = append(notes, "被时钟跳过的时刻不触发")
	}
	switch overlap {
	case OverlapSecond:
		notes = append(notes, "重复的时刻在第二次触发")
	case OverlapBoth:
		notes = append(notes, "重复的时刻两次都触发")
	}
	return notes
}

func (l chinese) forward(s skipped) string {
	text := "时钟拨快：" + s.first
	switch {
	case s.count == 2:
		text += " 和 " + s.last
	case s.count > 2:
		text += " 至 " + s.last
	}
	text += " 不存在"
	switch {
	case s.with != "":
		return text + "，与 " + s.with + " 合为一次"
	case s.count > 1:
		return text + "，合为一次"
	}
	return text
}

func (l chinese) back(clock string, pass int) string {
	return fmt.Sprintf("时钟拨慢：%s 出现两次，这是第 %d 次", clock, pass)
}

func (l chinese) dialects() string {
	return "星期：此处是 crontab 写法，1 是周一；Quartz 写法有一个日期字段为 ?，其中 1 是周日"
}

func (l chinese) and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return spaced(strings.Join(list[:len(list)-1], "、")+"和", list[len(list)-1])
}

// spaced keeps a space between a Chinese character and a number.
func spaced(before, after string) string {
	if isDigit(after[0]) {
		return before + " " + after
	}
	return before + after
}
