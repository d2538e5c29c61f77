"""What happens to the page beside the usual: slow clicks, answers that come late or never, a server that is gone."""

import json
import time

from selenium import webdriver
from selenium.webdriver.common.keys import Keys

import kit
from browser import page


def rates_do_not_jump_while_a_person_types(server, browser):
    client = server.client()
    for length in range(1, 17):
        client.put("m" * length, "x")
    begun = time.monotonic()
    browser.open()
    browser.shows("tbody", "m" * 16)
    for length in range(1, 17):
        browser.all("#search")[0].send_keys("m")
        browser.shows("main .row.space", f"{17 - length} found")
    assert browser.rows() == ["m" * 16]
    browser.wait("a small graph", lambda: browser.all("svg.spark .line"))
    samples = browser.driver.execute_script(
        "return document.querySelector('svg.spark .line').getAttribute('d').match(/[ML]/g).length")
    assert samples < time.monotonic() - begun + 2, f"{samples} samples in {time.monotonic() - begun} seconds"


def a_slow_click_is_a_click(server, browser):
    """The page asks the server every two seconds, and replaces its buttons."""
    client = server.client()
    job = client.put("slow", "x")
    browser.open("#/tube/slow/ready")
    browser.wait("the job", lambda: browser.rows() == [str(job)])
    find = lambda selector: browser.all(selector)[0]
    slowly = lambda: webdriver.ActionChains(browser.driver)
    slowly().click_and_hold(find(f"[aria-label='Select job {job}']")).pause(5).release().perform()
    browser.shows(".acting", "1 selected")
    client.put("slow", "x")
    browser.wait("the list is refreshed", lambda: len(browser.rows()) == 2)
    browser.driver.execute_script("document.querySelector('[data-key=drain]').focus()")
    slowly().key_down(Keys.SPACE).pause(5).key_up(Keys.SPACE).perform()
    browser.answer("Drain the server?", "Cancel")
    slowly().click_and_hold(find(".tabs a.buried")).pause(5).release().perform()
    browser.shows(".empty", "No buried jobs")


def a_question_waits_for_the_one_before(server, browser):
    """A count takes a while. Meanwhile a person does something else."""
    client = server.client()
    client.put_many("counted", 3)
    browser.open("#/tube/counted/ready")
    browser.wait("the jobs", lambda: len(browser.rows()) == 3)
    browser.driver.execute_script(
        "window.connected = window.fetch; window.fetch = async (path, options) => {"
        " const answer = await connected(path, options);"
        " if (path.includes('/jobs/count')) await new Promise((resume) => { window.counted = resume; });"
        " return answer; }")
    browser.click(".acting button", "All that match")
    browser.click(".acting button", "Delete")
    browser.wait("it is counted", lambda: browser.driver.execute_script("return Boolean(window.counted)"))
    browser.click("nav button", "Drain")
    browser.shows("dialog[open] h2", "Drain the server?")
    browser.driver.execute_script("window.counted(); window.counted = null")
    browser.lacks(".notice", "Counting")
    assert browser.texts("dialog[open] h2") == ["Drain the server?"], "Enter would confirm another question"
    browser.press(Keys.ESCAPE)
    browser.shows("dialog[open] h2", "Delete 3 ready jobs?")
    browser.press(Keys.ESCAPE)
    browser.wait("the dialog closes", lambda: not browser.all("dialog[open]"))
    browser.click(".acting button", "Delete")
    browser.wait("it is counted", lambda: browser.driver.execute_script("return Boolean(window.counted)"))
    browser.open("#/clients")
    browser.shows("h1", "Clients")
    browser.driver.execute_script("window.counted()")
    browser.lacks(".notice", "Counting")
    assert not browser.all("dialog[open], .notice"), "a question about a view that was left"


def a_number_is_typed_over_a_refresh(server, browser):
    browser.open()
    browser.shows("#state", "serving")
    browser.driver.execute_script(
        "window.left = 0; const field = document.querySelector(\"[aria-label='Go to job']\");"
        " field.addEventListener('blur', () => { window.left += 1; });"
        " window.asked = 0; window.connected = window.fetch;"
        " window.fetch = (path, options) => { window.asked += 1; return connected(path, options); }; field.focus()")
    browser.press("23", Keys.HOME)
    browser.wait("two refreshes", lambda: browser.driver.execute_script("return window.asked") > 4)
    browser.press("1")
    assert browser.all("[aria-label='Go to job']")[0].get_attribute("value") == "123"
    assert browser.driver.execute_script("return window.left") == 0, "a keyboard on a screen closes"


def what_was_typed_for_a_put_is_kept(server, browser):
    browser.open()
    browser.click("nav button", "Put")
    browser.shows("dialog[open] h2", "Put a job")
    for name, text in (("tube", "-bad-"), ("body", "a long text"), ("priority", "7"), ("tags", "grp:rows")):
        browser.fill(f"dialog [name={name}]", text)
    browser.click("dialog button", "Put")
    browser.shows("dialog[open] [role=alert]", "not a tube name")
    browser.answer("Put a job", "Put", tube="good")
    browser.shows(".notice", "put into “good”")
    job = server.get("tubes/good/jobs?state=ready")["jobs"][0]
    assert (job["pri"], job["ttr"], job["group"]) == (7, 60, "rows"), job
    assert server.get(f"jobs/{job['id']}")["body"]["data"] == "a long text"
    # A person decides whether to repeat a put whose answer was lost.
    browser.driver.execute_script(
        "window.connected = window.fetch; window.fetch = async (path, options) => {"
        " const answer = await connected(path, options);"
        " if (options.method) throw new TypeError('no connection'); return answer; }")
    browser.click("nav button", "Put")
    browser.answer("Put a job", "Put", tube="lost", body="once")
    browser.shows(".notice.bad", "The server does not answer: it may have made the change.")
    assert not browser.all("dialog[open]"), "Enter would put it again"


def a_body_of_brackets_is_shown(server, browser):
    job = server.client().put("deep", "[" * 4000 + "]" * 4000)
    browser.open(f"#/job/{job}")
    browser.shows("[role=tab]", "JSON")
    length = browser.driver.execute_script("return document.querySelector('pre').textContent.length")
    assert length < 1_000_000, f"{length} characters are shown of a body with 8,000"


def views_that_are_left_wait_for_nothing(server, browser):
    """Each view of a job has a request that waits up to 50 s, and a browser has six connections to a server."""
    client = server.client()
    jobs = [client.put("open", "x") for _ in range(8)]

    def view(job):
        begun = time.monotonic()
        browser.open(f"#/job/{job}")
        browser.shows("h1", f"Job {job}")
        assert time.monotonic() - begun < 40, "the page waits for the requests of other views"

    for job in jobs:
        view(job)
    for job in jobs[:-1]:  # each in a tab, all but the last one in the background
        browser.driver.switch_to.new_window("tab")
        view(job)
    assert client.ask(f"delete {jobs[-2]}") == "DELETED"
    browser.shows(".empty", "no such job")


def views_come_back_with_what_they_show(server, browser):
    client = server.client()
    browser.open("#/tube/-bad-")
    browser.shows(".empty", "no such tube")
    browser.open("#/tube/late/ready")
    browser.shows(".empty", "no such tube")
    job = client.put("late", "first")
    browser.wait("the tube is there", lambda: browser.rows() == [str(job)])
    assert not browser.all(".notice"), "an address without a tube is no error"
    browser.open(f"#/job/{job}")
    browser.shows("pre", "first")
    # A server without a binlog has forgotten the job when it starts again, and then another one gets the number.
    browser.driver.execute_script(
        "window.connected = window.fetch; window.fetch = async (path, options) => {"
        " const answer = await connected(path, options);"
        f" if (path !== '/api/v1/jobs/{job}') return answer;"
        " if (window.isForgotten) return new Response('{\"message\": \"no such job\"}', {status: 404});"
        " const job = await answer.json(); job.body.data = 'other';"
        " return new Response(JSON.stringify(job)); }; window.isForgotten = true")
    browser.shows(".empty", "no such job")
    browser.driver.execute_script("window.isForgotten = false")
    browser.shows("pre", "other")


def another_server_has_no_selected_jobs(server, browser):
    """A server that starts again may give the numbers of the jobs to others."""
    job = server.client().put("again", "x")
    browser.open("#/tube/again/ready")
    browser.click(f"[aria-label='Select job {job}']")
    browser.shows(".acting", "1 selected")
    browser.click(".acting button", "Delete")
    browser.shows("dialog[open] h2", "Delete")
    browser.driver.execute_script(
        "window.connected = window.fetch; window.fetch = async (path, options) => {"
        " const answer = await connected(path, options);"
        " if (path !== '/api/v1/server') return answer;"
        " const server = await answer.json(); server.stats.id = 'another';"
        " return new Response(JSON.stringify(server)); }")
    browser.shows(".acting", "0 selected")
    assert not browser.all("dialog[open]"), "the question is about jobs of the server before"
    browser.wait("the job", lambda: browser.rows() == [str(job)])
    browser.click(f"[aria-label='Select job {job}']")
    browser.shows(".acting", "1 selected")


def a_proxy_without_its_server_is_not_an_answer(server, browser):
    answer_with = lambda body, status: browser.driver.execute_script(
        "window.connected ??= window.fetch;"
        f" window.fetch = async () => new Response({json.dumps(body)}, {{status: {status}}})")
    browser.open()
    browser.shows("#state", "serving")
    for body, status in (("<h1>Bad Gateway</h1>", 502), ("<h1>Log in</h1>", 200)):
        answer_with(body, status)
        browser.shows("#state", "not reachable")
        assert browser.all("body.stale"), "the numbers are dimmed"
        browser.driver.execute_script("window.fetch = window.connected")
        browser.shows("#state", "serving")
    assert not browser.all(".notice"), "the state says it"
    answer_with('{"error": "forbidden", "message": "no"}', 403)
    browser.shows(".notice.bad", "no")
    browser.driver.execute_script(
        "const forbidden = window.fetch; window.asked = 0;"
        " window.fetch = (path) => { window.asked += 1; return forbidden(path); }")
    browser.wait("it asks again", lambda: browser.driver.execute_script("return window.asked") > 2)
    assert len(browser.all(".notice")) <= 1, "one message is enough"
    assert browser.all("body.stale"), "the numbers are dimmed"


def pages_turn_once_while_an_answer_is_under_way(server, browser):
    client = server.client()
    names = [f"tube-{number:03}" for number in range(250)]
    client.socket.sendall("".join(f"watch {name}\r\n" for name in names).encode())
    for _ in names:
        client.replies.readline()
    browser.open()
    browser.click("th button", "Tube")
    browser.wait("the first page", lambda: "1 to 100" in browser.texts("main")[0])
    # The first click comes before the answer that is under way, the second one before the answer to the first.
    browser.driver.execute_script(
        "window.lists = 0; window.connected = window.fetch; window.fetch = (path, options) => {"
        " if (path.includes('/tubes?') && ++lists < 3) {"
        "  [...document.querySelectorAll('button')].find((each) => each.innerText === 'Next').click(); }"
        " return connected(path, options); }")
    # The next list follows the answer to the third one.
    browser.wait("four lists", lambda: browser.driver.execute_script("return window.lists") > 3)
    assert "101 to 200" in browser.texts("main")[0], browser.texts("main")[0]


def a_copy_of_a_job_that_was_left_is_not_offered(server, browser):
    job = server.client().put("long", "x" * 40_000)
    browser.open(f"#/job/{job}")
    browser.driver.execute_script(
        "window.connected = window.fetch; window.fetch = async (path, options) => {"
        " if (path.endsWith('/body')) { window.asked = true; await new Promise((resume) => { window.go = resume; }); }"
        " return connected(path, options); }")
    browser.click("button", "Put a copy")
    browser.wait("it is asked for", lambda: browser.driver.execute_script("return window.asked"))
    browser.open("#/clients")
    browser.shows("h1", "Clients")
    browser.driver.execute_script("window.go()")
    time.sleep(1)
    assert not browser.all("dialog[open], .notice"), "a question about a job that was left"


def tubes_with_names_of_dots_are_opened(server, browser):
    """A browser takes these names in a path as this directory and the one above."""
    client = server.client()
    for name in (".", "..", "..."):
        job = client.put(name, f"in {name}")
        browser.open()
        browser.click("tbody a", name)
        browser.wait("its job", lambda: browser.rows() == [str(job)])
        browser.click("button", "Put")
        browser.answer("Put a job", "Put", body="another")
        browser.wait("both jobs", lambda: browser.rows() == [str(job), str(job + 1)])
        browser.click("main button", "Flush")
        browser.answer(f"Delete all 2 jobs of “{name}”?", "Delete")
        browser.wait("it is empty", lambda: not client.stats(job))


def a_copy_that_the_api_refuses_is_not_offered():
    with kit.server("-z", "1000000") as server, page(server) as browser:
        # The second one is longer in JSON.
        for body in ("x" * 300_000, '"' * 200_000):
            job = server.client().put("large", body)
            browser.driver.get("about:blank")
            browser.open(f"#/job/{job}")
            browser.click("button", "Put a copy")
            browser.shows(".notice.bad", "use beanstalkctl put")
            assert not browser.all("dialog[open]"), "a field with the whole body"


def a_task_leaves_the_selection_alone():
    with kit.server_with_dead_tube() as server, page(server) as browser:
        kept, *_ = server.client().let_die("mail", 40)
        browser.open("#/tube/dead/ready")
        browser.wait("the jobs", lambda: len(browser.rows()) == 40)
        browser.click("[aria-label='Select all jobs of this page']")
        browser.click(f"[aria-label='Select job {kept}']")
        begun = time.monotonic()
        browser.driver.execute_script(
            "window.connected = window.fetch; window.lists = 0; window.fetch = (path, options) => {"
            " if (path.includes('/jobs?')) lists += 1; return connected(path, options); }")
        browser.click(".acting button", "Send back")
        browser.answer("Send back 39 jobs?", "Send", rate="1")
        browser.shows(".notice.running", "of 39 jobs sent back")
        browser.shows(".acting", "0 selected")
        browser.click(f"[aria-label='Select job {kept}']")
        browser.click(".notice.running button", "Stop")
        browser.shows(".notice", "Stopped.")
        browser.wait("some are gone", lambda: len(browser.rows()) < 40)
        browser.shows(".acting", "1 selected")
        lists = browser.driver.execute_script("return window.lists")
        took = time.monotonic() - begun
        assert lists < 4 + took / 2, f"the list was asked for {lists} times in {took:.1f} seconds"


def a_task_whose_poll_failed_is_found_again():
    with kit.server_with_dead_tube() as server, page(server) as browser:
        server.client().let_die("mail", 1000)
        counted = server.get("tubes/dead/jobs/count?state=ready&dead=true")
        chosen = {"state": "ready", "dead": True, "expected": 1000, "as_of": counted["as_of"]}
        assert server.post("tubes/dead/actions", {"action": "redrive", "rate": 1, **chosen})[0] == 202
        browser.open()
        browser.shows(".notice.running", "of 1,000 jobs sent back")
        for lost in ("path.includes('/tasks/')", "true"):
            browser.driver.execute_script(
                "window.connected ??= window.fetch; window.fetch = (path, options) =>"
                f" {lost} ? Promise.reject(new TypeError('no connection')) : window.connected(path, options)")
            browser.shows(".notice.bad", "The server does not answer")
            browser.wait("no progress is shown", lambda: not browser.all(".notice.running"))
            browser.driver.execute_script("window.fetch = window.connected")
            browser.shows(".notice.running", "of 1,000 jobs sent back")
            assert len(browser.all(".notice.running")) == 1
        browser.driver.execute_script(
            "window.fetch = (path, options) => path.endsWith('/stop')"
            " ? Promise.reject(new TypeError('no connection')) : window.connected(path, options)")
        browser.click(".notice.running button", "Stop")
        browser.shows(".notice.bad", "it may have made the change")
        browser.driver.execute_script("window.fetch = window.connected")
        browser.click(".notice.running button", "Stop")
        browser.shows(".notice", "Stopped.")


STEPS = (
    rates_do_not_jump_while_a_person_types, a_slow_click_is_a_click, a_question_waits_for_the_one_before,
    a_number_is_typed_over_a_refresh, what_was_typed_for_a_put_is_kept, a_body_of_brackets_is_shown,
    views_that_are_left_wait_for_nothing, views_come_back_with_what_they_show, another_server_has_no_selected_jobs,
    a_proxy_without_its_server_is_not_an_answer, pages_turn_once_while_an_answer_is_under_way,
    a_copy_of_a_job_that_was_left_is_not_offered, tubes_with_names_of_dots_are_opened,
)
STEPS_WITH_OWN_SERVER = (
    a_copy_that_the_api_refuses_is_not_offered, a_task_leaves_the_selection_alone,
    a_task_whose_poll_failed_is_found_again,
)
