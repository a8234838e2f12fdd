// Notes when an answer's tokens came, how many the server counted, and how it ended.
// The bytes pass through unchanged. State is in variables of the request, since a
// script's own variables may outlive it.

const TEXT = /"(?:content|reasoning_content|reasoning|text|delta|arguments)": ?"[^"]/;
const TEXTS = new RegExp(TEXT.source, 'g');
const END = /data: \[DONE\]|"type": ?"(?:message_stop|response\.completed)"/;
const SEAM = 48;

function noteTokens(v, count) {
    const now = Date.now();
    if (!v.llm_first) {
        v.llm_first = String(now);
    } else if (!v.llm_gap || now - Number(v.llm_last) > Number(v.llm_gap)) {
        v.llm_gap = String(now - Number(v.llm_last));
    }
    v.llm_last = String(now);
    v.llm_events = String(Number(v.llm_events || 0) + count);
}

function noteUsage(v, data) {
    const prompt = data.match(/"(?:prompt|input)_tokens": ?(\d+)/);
    if (prompt) {
        v.llm_prompt = prompt[1];
    }
    const completion = data.match(/"(?:completion|output)_tokens": ?(\d+)/);
    if (completion) {
        v.llm_completion = completion[1];
    }
    const cached = data.match(/"(?:cached|cache_read_input)_tokens": ?(\d+)/);
    if (cached) {
        v.llm_cached = cached[1];
    }
}

// Returns the end of an event that is not whole yet, when its text was not counted.
function unfinished(data) {
    const rest = data.slice(data.lastIndexOf('\n') + 1);
    return TEXT.test(rest) ? '' : rest.slice(-SEAM);
}

function answer(r, data, flags) {
    if (data.length) {
        const v = r.variables;
        const type = v.upstream_http_content_type || '';
        const streamed = type.startsWith('text/event-stream');
        const tail = v.llm_tail || '';
        // An event may be cut anywhere: look across the seam too.
        const seam = tail + data.slice(0, SEAM);
        if (streamed) {
            const found = (data.match(TEXTS) || []).length;
            if (found > 0 || (tail && TEXT.test(seam))) {
                noteTokens(v, found || 1);
            }
            if (END.test(data) || END.test(seam)) {
                v.llm_done = '1';
            }
            if (/"error": ?\{/.test(data) || /"error": ?\{/.test(seam)) {
                v.llm_error = '1';
            }
        }
        // Where an event was cut its numbers may be: they are read with what went before.
        noteUsage(v, tail + data);
        if (!v.llm_model) {
            const model = data.match(/"model": ?"([^"]+)"/);
            if (model) {
                v.llm_model = model[1];
            }
        }
        v.llm_end = String(Date.now());
        v.llm_tail = streamed ? unfinished(data) : data.slice(-SEAM);
    }
    r.sendBuffer(data, flags);
}

export default { answer };
