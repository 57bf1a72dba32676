// The words of the view in its two languages, and how figures are written.

const ENGLISH = {
  kind: {
    task: "task",
    progress: "progress report",
    completion: "completion report",
    ask: "question",
    message: "message",
    answer: "answer",
  },
  status: {
    running: "running",
    waiting: "waiting",
    idle: "idle",
    completed: "completed",
    terminated: "terminated",
    failed: "failed",
    timed_out: "timed out",
    stopped: "stopped",
    interrupted: "interrupted",
  },
  run: {
    "": "ready",
    running: "at work",
    completed: "done",
    failed: "failed",
    stopped: "stopped",
    timed_out: "timed out",
    interrupted: "interrupted",
  },
  you: "You",
  system: "System",
  team: "Team",
  byYou: "sent by you",
  waitsFor: (names) => `waiting for ${names}`,
  waitsForYou: "waiting for you",
  tokens: (text) => `${text} tokens`,
  agents: (n) => (n === 1 ? "1 agent" : `${n} agents`),
  questions: (n) => (n === 1 ? "1 question for you" : `${n} questions for you`),
  inbox: (n) => (n === 1 ? "1 message waiting to be read" : `${n} messages waiting to be read`),
  left: (n) =>
    `${n ? (n === 1 ? "1 earlier message left out of" : `${n} earlier messages left out of`) : "Long results were cut in"} the requests: the model's context was full`,
  earlier: (n) => (n === 1 ? "1 earlier message is in the transcript" : `${n} earlier messages are in the transcript`),
  stop: "Stop",
  stopAll: "Stop the team",
  stopping: "Stopping…",
  stopOne: (name) => `Stop ${name}`,
  asks: (name) => `${name} asks you`,
  answer: "Answer",
  answerLabel: (name) => `Your answer to ${name}`,
  answerHint: "Your answer — Enter sends, Shift+Enter starts a new line",
  wants: (name, tool) => `${name} asks to use ${tool}`,
  exactly: "Exact arguments",
  allow: "Approve",
  allowAll: "Approve all of this kind",
  allowAllTitle: (name, kind) => `From now on ${name} may do this without asking: ${kind}`,
  deny: "Deny",
  whyNot: (name) => `Why ${name} may not`,
  whyNotHint: "Why not — Enter denies",
  leftToAllow: (time) => `denied in ${time}`,
  send: "Send",
  sendTo: "To",
  sendLabel: "Message to the team",
  sendHint: (name) => `Message to ${name}…`,
  leader: "Team Leader",
  sending: "Sending…",
  sent: "Sent",
  noReply: "No answer from the kernel yet. It may be busy; the text is kept.",
  thinking: "thinking",
  thoughts: "reasoning",
  arguments: "arguments",
  result: "result",
  running: "running",
  refused: "refused",
  cut: "broke off",
  latest: "Latest",
  nothing: "No messages yet",
  loading: "Waiting for the team…",
  silent: "The kernel does not answer. If it was restarted, this view is over; the transcript has what was said.",
  behind: "catching up…",
  warning: "Warning",
  banner: "Note",
  progress: "Please wait",
  error: "Error",
  elapsed: "time of this run",
  cost: "cost",
  conversation: (name) => `Conversation of ${name}`,
};

const CHINESE = {
  kind: {
    task: "任务发布",
    progress: "任务进度输出",
    completion: "任务完成汇报",
    ask: "提问",
    message: "消息",
    answer: "回答",
  },
  status: {
    running: "运行中",
    waiting: "等待中",
    idle: "空闲",
    completed: "已完成",
    terminated: "已终止",
    failed: "失败",
    timed_out: "超时",
    stopped: "已停止",
    interrupted: "已中断",
  },
  run: {
    "": "就绪",
    running: "工作中",
    completed: "已完成",
    failed: "失败",
    stopped: "已停止",
    timed_out: "超时",
    interrupted: "已中断",
  },
  you: "你",
  system: "系统",
  team: "团队",
  byYou: "由你发送",
  waitsFor: (names) => `等待 ${names}`,
  waitsForYou: "等待你的回答",
  tokens: (text) => `${text} 个 token`,
  agents: (n) => `${n} 个智能体`,
  questions: (n) => `${n} 个问题等你回答`,
  inbox: (n) => `${n} 条消息待读`,
  left: (n) => `${n ? `请求里略去了 ${n} 条较早的消息` : "请求里截短了较长的结果"}：模型的上下文已满`,
  earlier: (n) => `更早的 ${n} 条消息见文字记录`,
  stop: "停止",
  stopAll: "停止团队",
  stopping: "正在停止…",
  stopOne: (name) => `停止 ${name}`,
  asks: (name) => `${name} 向你提问`,
  answer: "回答",
  answerLabel: (name) => `给 ${name} 的回答`,
  answerHint: "输入回答：Enter 发送，Shift+Enter 换行",
  wants: (name, tool) => `${name} 请求使用 ${tool}`,
  exactly: "完整参数",
  allow: "允许",
  allowAll: "同类全部允许",
  allowAllTitle: (name, kind) => `今后 ${name} 可以直接执行：${kind}`,
  deny: "拒绝",
  whyNot: (name) => `不允许 ${name} 的原因`,
  whyNotHint: "原因：Enter 拒绝",
  leftToAllow: (time) => `${time} 后自动拒绝`,
  send: "发送",
  sendTo: "发给",
  sendLabel: "给团队的消息",
  sendHint: (name) => `给 ${name} 的消息…`,
  leader: "Team Leader",
  sending: "正在发送…",
  sent: "已发送",
  noReply: "内核尚未回应，可能正忙；内容已保留。",
  thinking: "思考中",
  thoughts: "思考过程",
  arguments: "参数",
  result: "结果",
  running: "执行中",
  refused: "被拒绝",
  cut: "输出中断",
  latest: "最新",
  nothing: "还没有消息",
  loading: "正在等待团队…",
  silent: "内核没有回应。如果内核已重启，此视图不再更新，内容见文字记录。",
  behind: "正在同步…",
  warning: "警告",
  banner: "说明",
  progress: "请稍候",
  error: "错误",
  elapsed: "本次运行用时",
  cost: "费用",
  conversation: (name) => `${name} 的对话`,
};

export function wordsOf(language) {
  return String(language || "").toLowerCase().startsWith("zh") ? CHINESE : ENGLISH;
}

export function countText(n) {
  if (n < 1000) return String(n);
  if (n < 100000) return `${(n / 1000).toFixed(1)}k`;
  if (n < 1000000) return `${Math.round(n / 1000)}k`;
  return `${(n / 1000000).toFixed(1)}M`;
}

export function timeText(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

export function costText(cost) {
  return cost < 0.01 ? cost.toFixed(4) : cost.toFixed(2);
}

// What a reader sees beside an agent's name: a key for the mark, and words.
export function standing(agent, nameOf, words) {
  if (agent.status === "waiting" && agent.waits.length) {
    if (agent.waits.includes(-1)) return { key: "asking", text: words.waitsForYou };
    return { key: "waiting", text: words.waitsFor(agent.waits.map(nameOf).join(", ")) };
  }
  const key = agent.detail || agent.status;
  return { key, text: words.status[key] || key };
}

// Heading of a bubble (message protocol §6): role, purpose; notes stand apart.
export function heading(bubble, nameOf, words) {
  const speaker =
    bubble.role === "system" ? words.system : bubble.role || (bubble.by === -1 ? words.you : nameOf(bubble.by));
  const notes = [];
  if (bubble.mark) notes.push(words.status[bubble.mark] || bubble.mark);
  if (bubble.you) notes.push(words.byYou);
  if (bubble.cut) notes.push(words.cut);
  return { role: speaker, purpose: bubble.kind ? words.kind[bubble.kind] || bubble.kind : "", notes };
}
